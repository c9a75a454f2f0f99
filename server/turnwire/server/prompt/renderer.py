"""The port of renderers: from what stands in front of the items, and the items, to token ids that only ever grow.

Above: `engine/tokens/rendering`, which remembers how far a chain was rendered. Below: one renderer per kind of format.
A `Chain` is a persistent value: extending it costs what is new, and leaves the chain it came from as it was.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from turnwire.server.prompt.segments import Rendered
from turnwire.v1.item_pb2 import Item
from turnwire.v1.tool_pb2 import ToolSet


class RenderError(Exception):
    """A conversation cannot be put into a model's format; the text is for the client."""


@dataclass(frozen=True, slots=True)
class Head:
    """Everything that stands in front of the items. Equal by `key`: tools are compared by their digest."""

    model: str = ""
    instructions: str = ""
    tools: ToolSet = field(default_factory=ToolSet, compare=False)
    tools_digest: bytes = b""
    """Identifies the tools; computed where it is empty."""
    effort: str = ""
    """As the client asked: `none` to `max`; empty for the model's default."""
    date: str = ""
    """The day the chain began, as YYYY-MM-DD: fixed for the chain, or its prefix would change at midnight."""
    all_reasoning: bool = False
    """Whether reasoning of finished turns stays in the prompt."""
    schema_name: str = ""
    """Name of the JSON schema that the answer has to follow."""
    schema: str = ""
    """That schema as JSON text; empty for none."""
    schema_description: str = ""

    def __post_init__(self) -> None:
        if not self.tools_digest and self.tools.tools:
            data = self.tools.SerializeToString(deterministic=True)
            object.__setattr__(self, "tools_digest", hashlib.blake2b(data, digest_size=16).digest())


@dataclass(frozen=True, slots=True)
class Step:
    """What one segment of a transcript adds to a chain."""

    items: tuple[Item, ...] = ()
    """Items to be rendered, in order, after what was sampled."""
    sampled: array[int] | None = None
    """Ids the model sampled, its stop token included, kept as they are. Must not change."""
    said: tuple[Item, ...] = ()
    """The items that `sampled` stands for; of a hosted call, the call only: its output is in `items`."""


History = Callable[[], Iterator[Step]]
"""Yields the steps of a chain so far, oldest first. Walks the whole history: asked for only where it must be."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A longer chain, and what it cost."""

    chain: Chain
    items_rendered: int = 0
    """Items put into tokens."""
    skipped: int = 0
    """Items and parts left out, since the format cannot say them."""
    retailed: int = 0
    """Tokens of finished turns gone through once more, to drop their reasoning."""
    whole: bool = False
    """Whether the history was rendered again, since the format is not append-only here."""


class Chain(Protocol):
    """A conversation as tokens; a value."""

    @property
    def prompt(self) -> Rendered:
        """The tokens with the beginning of the model's answer."""
        ...

    def extend(self, steps: Sequence[Step], history: History) -> Extension:
        """Returns the chain that goes on with some steps.

        Raises:
            RenderError: The format cannot say this conversation.
        """
        ...


class Renderer(Protocol):
    """A model's format. Safe to use from several threads."""

    name: str
    """Short label for metrics, such as `harmony`."""
    template_hash: str
    """Identifies the format in every detail."""
    tokenizer_hash: str
    """Identifies the tokenizer."""
    stop_token_ids: tuple[int, ...]
    """Ids that end the model's turn."""

    def start(self, head: Head, *, cached: bool = True) -> Chain:
        """Returns the chain without items; cached by the head, unless that is not wanted.

        Raises:
            RenderError: The format cannot say this head.
        """
        ...


def plain_history(steps: Sequence[Step] = ()) -> History:
    """Returns the history that consists of some steps."""
    return lambda: iter(steps)
