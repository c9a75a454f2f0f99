"""The record of a pass, and the key that its chain is routed by.

Above it: `rendered`. Below it: the session's record, and the chain, which knows its key.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.prompt import Prompt


@dataclass(frozen=True, slots=True)
class ChainRecord(TokenRecord):
    """A record that knows its chain."""

    routing_key: str = ""
    """The key of the chain; forks have it in common with what they fork from."""
    verbatim: bool = True
    """Whether what was sampled stands in the conversation as it is; else later prompts say its items anew."""


def chain_key(prompt: Prompt) -> str:
    """Returns the key of a prompt's chain."""
    return prompt.chain.key
