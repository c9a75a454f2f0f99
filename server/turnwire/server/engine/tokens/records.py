"""The record of a pass, and the key that its chain is routed by.

Above it: `rendered`. Below it: the session's record. A chain has no name of its own, so the first pass of it gives one,
the id of its response, and each record hands it on: finding it costs a step or two, however long the chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.prompt import Prompt


@dataclass(frozen=True, slots=True)
class ChainRecord(TokenRecord):
    """A record that knows its chain."""

    routing_key: str = ""
    """The id of the response that the chain began with; forks have it in common with what they fork from."""
    verbatim: bool = True
    """Whether what was sampled stands in the conversation as it is; else later prompts say its items anew."""


def chain_key(prompt: Prompt) -> str:
    """Returns the key of a prompt's chain; a chain without a pass yet begins with this one's response."""
    for segment in prompt.transcript.segments():
        record = segment.record
        if record is not None:
            return record.routing_key if isinstance(record, ChainRecord) else prompt.response_id
    return prompt.response_id
