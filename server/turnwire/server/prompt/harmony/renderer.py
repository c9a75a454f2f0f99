"""Renders harmony conversations: prefix, items and sampled tokens, with the reasoning of finished turns dropped.

Above: whoever renders chains, through the port. Below: heads, special tokens and the vocabulary.

Inside a turn a chain only grows. Once a turn ended in a final answer, its reasoning leaves the prompt: that turn's tail
is gone through once more, by its ids, so that everything sampled in it stays as it was sampled.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import marks
from turnwire.server.prompt.harmony.head import (
    FUNCTIONS,
    Identity,
    developer_text,
    groups_of,
    instructions_text,
    system_text,
)
from turnwire.server.prompt.harmony.marks import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, word
from turnwire.server.prompt.parts import Call, Output, call_of, message_texts, output_of, reasoning_texts
from turnwire.server.prompt.renderer import Extension, Head, History, Step
from turnwire.server.prompt.segments import EMPTY, TYPECODE, Rendered, Segment
from turnwire.v1.item_pb2 import Item, Message, Role

VERSION: Final = "1"
"""Raised with every change of the tokens that some conversation is rendered to."""

UNKNOWN_TOOL: Final = f"{FUNCTIONS}.unknown"
"""Whose output it is where the call is not part of the conversation any more."""

_NO_CALLS: Final[Mapping[str, str]] = {}

_PREFIXES: Final = 256
"""Prefixes kept; one is about 40 KB for a coding agent's tools."""


class HarmonyRenderer:
    """Renders for gpt-oss models."""

    name = "harmony"

    def __init__(self, identity: Identity | None = None) -> None:
        """Takes what the system message says about the model."""
        self._identity = identity or Identity()
        described = f"harmony {VERSION} {self._identity!r}"
        self.template_hash = hashlib.sha256(described.encode()).hexdigest()
        self.tokenizer_hash = vocabulary.VOCABULARY_SHA256
        self.stop_token_ids: tuple[int, ...] = (RETURN, CALL)
        self._prefix = lru_cache(_PREFIXES)(self._render_prefix)

    def start(self, head: Head, *, cached: bool = True) -> HarmonyChain:
        """Returns the chain without items; encoded once per head, unless that is not wanted."""
        rendered = self._prefix(head) if cached else self._render_prefix(head)
        return HarmonyChain(rendered, rendered, False, head.all_reasoning, _NO_CALLS)

    def _render_prefix(self, head: Head) -> Rendered:
        groups = groups_of(head)
        functions = any(group.name == FUNCTIONS and group.functions for group in groups)
        ids = _message(word("system"), (system_text(head, self._identity, functions=functions),))
        developer = developer_text(head, groups)
        if developer:
            ids += _message(word("developer"), (developer,))
        return EMPTY.extend(Segment(ids))


@dataclass(frozen=True, slots=True)
class HarmonyChain:
    """A harmony conversation as tokens; a value."""

    rendered: Rendered
    """All messages, each with its end."""
    settled: Rendered
    """The part of them that cannot change any more."""
    reasons: bool
    """Whether there is reasoning behind the settled part."""
    all_reasoning: bool
    """Whether reasoning of finished turns stays."""
    recipients: Mapping[str, str]
    """Whom the open calls were sent to, by call id."""

    @property
    def prompt(self) -> Rendered:
        """The tokens with the beginning of the model's answer."""
        return self.rendered.extend(marks.opening())

    def extend(self, steps: Sequence[Step], history: History) -> Extension:
        """Returns the chain that goes on with some steps; never needs the history."""
        builder = _Builder(self)
        for step in steps:
            if step.sampled is not None:
                builder.sampled(step.sampled)
                for item in step.said:
                    builder.note(item)
            for item in step.items:
                builder.item(item)
        return builder.extension()


class _Builder:
    """Extends one chain; the pieces of a step are put together before they become a segment."""

    def __init__(self, chain: HarmonyChain) -> None:
        self._chain = chain
        self._rendered = chain.rendered
        self._settled = chain.settled
        self._reasons = chain.reasons
        self._recipients = dict(chain.recipients)
        self._pending = array(TYPECODE)
        self._items = 0
        self._skipped = 0
        self._retailed = 0

    def extension(self) -> Extension:
        self._flush()
        chain = replace(
            self._chain,
            rendered=self._rendered,
            settled=self._settled if self._reasons else self._rendered,
            reasons=self._reasons,
            recipients=self._recipients or _NO_CALLS,
        )
        return Extension(chain, self._items, self._skipped, self._retailed)

    def sampled(self, ids: array[int]) -> None:
        """Adds what the model sampled, made whole where it was cut."""
        self._flush()
        opening = marks.opening()
        opened = opening.ids + ids
        spans = marks.look(opened)
        whole = opened
        if spans.open_at >= 0:
            # A header without content says nothing, and has no item.
            whole = opened[: spans.open_at]
        elif not spans.closed:
            whole = opened + array(TYPECODE, (END,))
        elif opened[-1] == RETURN:
            # What ends sampling does not stand in a history.
            whole = opened[:-1] + array(TYPECODE, (END,))
        if whole:
            kept = ids if whole is opened else whole[len(opening) :]
            self._rendered = self._rendered.extend(opening).extend(Segment(kept))
        self._reasons = self._reasons or spans.reasons
        if spans.last_final >= 0:
            self._settle(len(whole) - spans.last_final)

    def note(self, item: Item) -> None:
        """Remembers whom a sampled call was sent to."""
        call = call_of(item)
        if call is not None:
            self._recipients[call.call_id] = recipient(call)

    def item(self, item: Item) -> None:
        """Adds one item."""
        match item.WhichOneof("kind"):
            case "message":
                self._message(item.message)
            case "reasoning":
                texts = reasoning_texts(item.reasoning)
                if not texts:
                    self._skipped += 1
                    return
                self._reasons = True
                self._add(_message(_assistant("analysis"), texts))
            case _:
                call, output = call_of(item), output_of(item)
                if call is None and output is None:
                    self._skipped += 1
                    return
                # An approved call was shown when its approval was asked for.
                if call is not None and call.follows not in self._recipients:
                    self._call(call)
                if output is not None:
                    self._output(output)
        self._items += 1

    def _message(self, message: Message) -> None:
        texts, skipped = message_texts(message)
        self._skipped += skipped
        if message.role == Role.ROLE_ASSISTANT:
            final = message.phase != "commentary"
            ids = _message(_assistant("final" if final else "commentary"), texts)
            self._add(ids)
            if final:
                self._settle(len(ids))
        elif message.role == Role.ROLE_USER:
            self._add(_message(word("user"), texts))
        else:
            self._add(_message(word("developer"), (instructions_text("\n\n".join(texts)),)))

    def _call(self, call: Call) -> None:
        self._recipients[call.call_id] = recipient(call)
        header = [*word("assistant"), *_text(f" to={recipient(call)}"), CHANNEL, *word("commentary")]
        if not call.free_text:
            header += (*word(" "), CONSTRAIN, *word("json"))
        self._add(_message(header, (call.text,), CALL))

    def _output(self, output: Output) -> None:
        self._skipped += output.skipped
        name = UNKNOWN_TOOL
        for call_id in output.call_ids:
            name = self._recipients.pop(call_id, name)
        header = [*_text(name), *word(" to=assistant"), CHANNEL, *word("commentary")]
        self._add(_message(header, output.texts))

    def _add(self, ids: array[int]) -> None:
        self._pending += ids

    def _flush(self) -> None:
        if self._pending:
            # A copy, since an array that grew has room to grow further.
            self._rendered = self._rendered.extend(Segment(self._pending[:]))
            self._pending = array(TYPECODE)

    def _settle(self, behind: int) -> None:
        """Drops the reasoning before a final answer, which begins so many tokens before the end."""
        self._flush()
        if self._chain.all_reasoning or not self._reasons:
            return
        tail = self._rendered.since(self._settled.length)
        final = len(tail) - behind
        self._rendered = self._settled.extend(Segment(marks.without_reasoning(tail, final)))
        self._retailed += len(tail)
        self._reasons = marks.look(tail[final:]).reasons
        if not self._reasons:
            self._settled = self._rendered


def recipient(call: Call) -> str:
    """Returns whom a call is sent to: `functions.NAME`, or `NAMESPACE.NAME`."""
    return f"{call.namespace or FUNCTIONS}.{call.name}"


def _assistant(channel: str) -> tuple[int, ...]:
    return (*word("assistant"), CHANNEL, *word(channel))


def _text(text: str) -> list[int]:
    return vocabulary.encode(text)


def _message(header: Sequence[int], texts: Sequence[str], end: int = END) -> array[int]:
    ids = array(TYPECODE, (START, *header, MESSAGE))
    for text in texts:
        ids.extend(vocabulary.encode(text))
    ids.append(end)
    return ids
