"""Rules as values: categories of the built-in classifier, and the remote one.

Above it: the file's reader, the screener and the wiring. Below it: the values of the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from turnwire.server.policy.safety.matcher import Terms
from turnwire.server.session.screens import Direction, Hit

CODES: Final = ("invalid_prompt", "cyber_policy", "bio_policy")
"""Error codes that a flag of the input may end a response with."""
BOTH: Final = frozenset(Direction)
EXTRA: Final = "safety"
"""The extra whose packages find words and patterns."""


@dataclass(frozen=True, slots=True)
class Category:
    """What is flagged under one name."""

    name: str
    terms: Terms
    blocks: bool = True
    directions: frozenset[Direction] = BOTH
    code: str = "invalid_prompt"

    @property
    def hit(self) -> Hit:
        """What is said when it is found."""
        return Hit(self.name, self.blocks, self.code)


@dataclass(frozen=True, slots=True)
class RemoteRule:
    """What is done about a category that a remote classifier names."""

    blocks: bool = True
    code: str = "invalid_prompt"


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """A classifier behind HTTP, in the public API's shape of moderations."""

    url: str
    api_key: str = field(default="", repr=False)
    """Sent as a bearer token; secret."""
    model: str = ""
    """Sent as `model`; empty sends none."""
    timeout: float = 2.0
    """Seconds for one answer, waiting for a free place included."""
    max_concurrent: int = 32
    """Requests at the same time; more wait, within their time-out."""
    fails_open: bool = False
    """Whether a response goes on where there is no answer; else it ends with `server_error`."""
    directions: frozenset[Direction] = BOTH
    piece: int = 2_000
    """Characters of output that are sent at a time."""
    overlap: int = 200
    """Characters of what stands before that are sent again."""
    rule: RemoteRule = RemoteRule()
    """What is done about any category."""
    categories: dict[str, RemoteRule] = field(default_factory=dict[str, RemoteRule])
    """What is done about some."""


@dataclass(frozen=True, slots=True)
class SafetyConfig:
    """How responses are guarded."""

    gate: bool = True
    """Whether flags stop responses; else they are counted."""
    categories: tuple[Category, ...] = ()
    remote: RemoteConfig | None = None
