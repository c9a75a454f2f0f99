"""Classifiers elsewhere: the port, and the adapter for the public API's shape of moderations.

Above it: the runtime's guard, which asks and decides what no answer means. Below it: aiohttp. A request is
`POST URL {"input": [TEXT, …]}`, the answer `{"results": [{"flagged": BOOL, "categories": {NAME: BOOL}}, …]}`. Whatever
comes is bounded: time, requests at once, bytes of the answer, and what may be a category's name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import aiohttp
import msgspec

from turnwire.server.policy.safety.rules import RemoteConfig, RemoteRule
from turnwire.server.session.screens import Hit

MAX_ANSWER: Final = 1024 * 1024
"""Bytes of an answer."""
MAX_TEXT: Final = 20_000
"""Characters of one text; longer ones are sent in several, with the overlap between them."""
MAX_TEXTS: Final = 32
"""Texts in one request."""
MAX_CATEGORIES: Final = 64
"""Categories of one result that are taken notice of."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./ -]{0,63}")
_UNNAMED: Final = "flagged"


class RemoteFailure(Exception):
    """There is no answer."""

    def __init__(self, kind: str, detail: str) -> None:
        """Takes `timeout`, `unreachable`, `status` or `garbage`, and what happened, without what was asked."""
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class RemoteClassifier(Protocol):
    """A classifier that takes its time."""

    async def classify(self, texts: Sequence[str]) -> tuple[Hit, ...]:
        """Returns what is flagged in texts. Safe to cancel.

        Raises:
            RemoteFailure: There is no answer.
        """
        ...

    async def aclose(self) -> None:
        """Closes all connections."""


class _Result(msgspec.Struct):
    flagged: bool
    categories: dict[str, bool | None] = msgspec.field(default_factory=dict[str, bool | None])


class _Answer(msgspec.Struct):
    results: list[_Result]


_decode: Final = msgspec.json.Decoder(_Answer).decode


class Moderations:
    """Asks an endpoint of the public API's shape."""

    def __init__(self, config: RemoteConfig) -> None:
        """Takes where to ask and how; connects when first asked."""
        self._config = config
        self._places = asyncio.Semaphore(config.max_concurrent)
        self._session: aiohttp.ClientSession | None = None

    async def classify(self, texts: Sequence[str]) -> tuple[Hit, ...]:
        """Returns what is flagged in texts, all of them within one time-out. Safe to cancel.

        Raises:
            RemoteFailure: There is no answer.
        """
        pieces = [piece for text in texts for piece in _pieces(text, self._config.overlap)]
        hits: dict[Hit, None] = {}
        try:
            async with asyncio.timeout(self._config.timeout), self._places:
                for start in range(0, len(pieces), MAX_TEXTS):
                    batch = pieces[start : start + MAX_TEXTS]
                    hits.update(dict.fromkeys(self._hits(await self._ask(batch), len(batch))))
        except TimeoutError as error:
            msg = f"no answer within {self._config.timeout:g} s"
            raise RemoteFailure("timeout", msg) from error
        except (aiohttp.ClientError, OSError) as error:
            raise RemoteFailure("unreachable", type(error).__name__) from error
        return tuple(hits)

    async def _ask(self, texts: Sequence[str]) -> bytes:
        body: dict[str, object] = {"input": texts}
        if self._config.model:
            body["model"] = self._config.model
        async with self._opened().post(
            self._config.url, data=msgspec.json.encode(body), allow_redirects=False
        ) as response:
            if response.status != 200:
                raise RemoteFailure("status", str(response.status))
            answer = bytearray()
            async for data in response.content.iter_any():
                answer += data
                if len(answer) > MAX_ANSWER:
                    msg = f"an answer of more than {MAX_ANSWER} bytes"
                    raise RemoteFailure("garbage", msg)
            return bytes(answer)

    def _hits(self, answer: bytes, asked: int) -> Iterator[Hit]:
        try:
            results = _decode(answer).results
        except (msgspec.DecodeError, UnicodeError) as error:
            msg = "an answer that is no list of results"
            raise RemoteFailure("garbage", msg) from error
        if len(results) != asked:
            msg = f"{len(results)} results for {asked} texts"
            raise RemoteFailure("garbage", msg)
        for result in results:
            if not result.flagged:
                continue
            names = [name for name, found in result.categories.items() if found and _NAME.fullmatch(name)]
            for name in names[:MAX_CATEGORIES] or [_UNNAMED]:
                rule = self._config.categories.get(name, self._config.rule)
                yield _hit(name, rule)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"content-type": "application/json"}
            if self._config.api_key:
                headers["authorization"] = f"Bearer {self._config.api_key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(limit=self._config.max_concurrent),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def aclose(self) -> None:
        """Closes all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _hit(name: str, rule: RemoteRule) -> Hit:
    return Hit(name, rule.blocks, rule.code)


def _pieces(text: str, overlap: int) -> Iterator[str]:
    step = MAX_TEXT - min(overlap, MAX_TEXT // 2)
    yield text[:MAX_TEXT]
    for start in range(step, max(step, len(text) - (MAX_TEXT - step)), step):
        yield text[start : start + MAX_TEXT]
