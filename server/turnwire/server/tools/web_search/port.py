"""The port for whoever searches the web."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class SearchFailure(Exception):
    """A search brought nothing; the text is for the model and holds no secret."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search for."""

    text: str
    count: int
    """Most results."""
    country: str = ""
    """Two letters; empty is anywhere."""
    allowed_domains: tuple[str, ...] = ()
    """The only domains whose pages may be found; empty is all."""
    blocked_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One page that was found."""

    title: str
    url: str
    snippet: str


class SearchProvider(Protocol):
    """Searches the web."""

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Returns the pages found, best first. Safe to cancel.

        Raises:
            SearchFailure: The provider did not answer, or refused.
        """
        ...

    async def aclose(self) -> None:
        """Lets go of connections."""
        ...
