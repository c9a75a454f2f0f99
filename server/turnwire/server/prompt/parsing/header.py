"""The header of a harmony message: who speaks, on which channel, to whom, and of which type.

Above it: the harmony parser. Below it: nothing. Models write headers less carefully than content, so everything here
reads what it can and returns the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_RECIPIENT = re.compile(r"\bto=(?P<name>[^\s<>{}]*)")
_ROLE = re.compile(r"\s*(?P<role>assistant|system|developer|user|tool)(?![A-Za-z])")
_CHANNEL = re.compile(r"\s*(?P<channel>(?:analysis|commentary|final)\b|[^\s{}]*)")
_TYPE = re.compile(r"\s*(?:json|code|text)\b")
_TYPE_AFTER_MARK = re.compile(r"\s*[A-Za-z_]*")
_FUNCTIONS = "functions."
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")

KNOWN_CHANNELS = ("analysis", "commentary", "final")
"""The channels the format has."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says."""

    foreign: bool
    """Whether somebody other than the assistant speaks."""
    channel: str
    """One of the known channels, another word, or empty where there is none."""
    recipient: str
    rest: str
    """What belongs to no part of a header: content, where the model forgot the mark that begins it."""

    def tool(self, tools: frozenset[str]) -> str:
        """Returns the name of the tool the message calls; empty where it calls none.

        Recipients without a namespace are calls only of tools that were offered: models invent others.
        """
        name = self.recipient
        if name.startswith(_FUNCTIONS):
            match = _NAME.match(name, len(_FUNCTIONS))
            return match.group() if match else ""
        return name if name in tools else ""


def read_header(role: str, channel: str | None, content_type: str) -> Header:
    """Reads the three sections of a header.

    Args:
        role: What stands before the channel mark.
        channel: What follows it, up to the type mark; None where there is no channel mark.
        content_type: What follows the type mark.
    """
    recipient = ""
    found = _RECIPIENT.search(role)
    if found:
        recipient = found["name"]
        role = role[: found.start()] + role[found.end() :]
    speaker = _ROLE.match(role)
    foreign = speaker is not None and speaker["role"] != "assistant"
    rest = role[speaker.end() :] if speaker else role
    name = ""
    if channel is not None:
        word = _CHANNEL.match(channel)
        name = word["channel"] if word else ""
        if name.startswith("to="):
            name = ""
        else:
            channel = channel[word.end() :] if word else channel
        found = _RECIPIENT.search(channel)
        if found:
            recipient = found["name"]
            channel = channel[: found.start()] + channel[found.end() :]
        # Words before the channel mark are never content: the model wrote a mark of the header after them.
        rest = _TYPE.sub("", channel, count=1) if _TYPE.match(channel) else channel
    if content_type:
        rest += content_type[_end_of(_TYPE_AFTER_MARK.match(content_type)) :]
    return Header(foreign=foreign, channel=name, recipient=recipient, rest=rest)


def _end_of(match: re.Match[str] | None) -> int:
    return match.end() if match else 0
