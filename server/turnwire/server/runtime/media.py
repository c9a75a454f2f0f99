"""Brings what URLs stand for before a request is checked, and checks what holds images off the event loop.

Above it: `carrier`, for requests that hold an image or a file; all others never come here. Below it: policy, which says
what it wants, and the ports that fetch, or ask an image service. What was fetched lately is kept for a while, for its
principal alone, so that a picture that a conversation mentions again is not fetched again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from turnwire.server.media.config import MEDIA, MediaConfig
from turnwire.server.media.errors import MediaError
from turnwire.server.media.fetch import UrlFetcher
from turnwire.server.media.found import Fetched, MediaWanted, Outcome, Served, file_key
from turnwire.server.policy.port import RequestPolicy
from turnwire.server.session.effects import Prepare, PrepareAppend, Prepared
from turnwire.server.session.transcript import Entry

Monotonic = Callable[[], float]


class Looker(Protocol):
    """An image service."""

    async def look(self, url: str, /) -> Served:
        """Returns what it says of an image; raises MediaError. Safe to cancel."""
        ...

    async def aclose(self) -> None:
        """Closes all connections."""


@dataclass(frozen=True, slots=True)
class _Kept:
    fetched: Fetched
    until: float


class MediaRoom:
    """What all sessions share to bring images and files."""

    def __init__(
        self,
        config: MediaConfig = MEDIA,
        *,
        fetcher: UrlFetcher | None = None,
        service: Looker | None = None,
        now: Monotonic | None = None,
    ) -> None:
        """Takes the ports; what has none is refused.

        Args:
            config: Limits.
            fetcher: Fetches URLs.
            service: Looks at images in place of this server.
            now: The time in seconds, for what is kept; by default the event loop's.
        """
        self._config = config
        self._fetcher = fetcher
        self._service = service
        self._now = now
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._kept_bytes = 0

    async def gather(self, principal: str, wanted: MediaWanted) -> dict[str, Outcome]:
        """Returns what is found out about URLs, several at a time. Safe to cancel: nothing goes on afterwards.

        Args:
            principal: Whose request it is.
            wanted: Which URLs.
        """
        places = asyncio.Semaphore(self._config.max_fetches)
        budget = _Budget(self._config.max_fetched_bytes)
        found: dict[str, Outcome] = {}

        async def bring(key: str, url: str, look: Callable[[str, str, _Budget], Awaitable[Outcome]]) -> None:
            async with places:
                try:
                    found[key] = await look(principal, url, budget)
                except MediaError as error:
                    found[key] = error

        async with asyncio.TaskGroup() as group:
            for url in wanted.images:
                group.create_task(bring(url, url, self._image))
            for url in wanted.files:
                group.create_task(bring(file_key(url), url, self._fetch))
        return found

    async def aclose(self) -> None:
        """Closes the ports. Cancelling it may leave connections open."""
        for port in (self._fetcher, self._service):
            if port is not None:
                await port.aclose()

    async def _image(self, principal: str, url: str, budget: _Budget) -> Outcome:
        if self._service is not None:
            return await self._service.look(url)
        return await self._fetch(principal, url, budget)

    async def _fetch(self, principal: str, url: str, budget: _Budget) -> Fetched:
        if self._fetcher is None:
            raise MediaError("invalid_image_url", "This server fetches nothing from URLs.")
        key = (principal, url)
        now = asyncio.get_running_loop().time if self._now is None else self._now
        kept = self._kept.get(key)
        if kept is not None and kept.until > now():
            self._kept.move_to_end(key)
            budget.spend(kept.fetched)
            return kept.fetched
        budget.check()
        fetched = await self._fetcher.fetch(url)
        budget.spend(fetched)
        self._keep(key, _Kept(fetched, now() + self._config.cache_time))
        return fetched

    def _keep(self, key: tuple[str, str], kept: _Kept) -> None:
        self._drop(key)
        self._kept[key] = kept
        self._kept_bytes += len(kept.fetched.data)
        while self._kept_bytes > self._config.cache_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, str]) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._kept_bytes -= len(old.fetched.data)


class _Budget:
    """Bytes that one request may have fetched."""

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._spent = 0

    def spend(self, fetched: Fetched) -> None:
        self._spent += len(fetched.data)
        self.check()

    def check(self) -> None:
        if self._spent > self._limit:
            message = f"The URLs of this request lead to more than {self._limit} bytes."
            raise MediaError("image_file_too_large", message, limit=str(self._limit))


async def prepared_apart(checks: RequestPolicy, room: MediaRoom, request: Prepare) -> Prepared:
    """Checks a create in a thread, with what has to be known of its URLs. Safe to cancel.

    Raises:
        RequestError: The request cannot be taken.
    """
    try:
        return await asyncio.to_thread(checks.prepare, request)
    except MediaWanted as wanted:
        found = await room.gather(request.principal, wanted)
    return await asyncio.to_thread(checks.prepare, request, found)


async def append_prepared_apart(
    checks: RequestPolicy, room: MediaRoom, request: PrepareAppend, principal: str
) -> tuple[Entry, ...]:
    """Checks appended items in a thread, with what has to be known of their URLs. Safe to cancel.

    Raises:
        RequestError: An item cannot be taken.
    """
    told = request.items, request.visits, request.conversations, request.model
    try:
        return await asyncio.to_thread(checks.prepare_append, *told)
    except MediaWanted as wanted:
        found = await room.gather(principal, wanted)
    return await asyncio.to_thread(checks.prepare_append, *told, found)
