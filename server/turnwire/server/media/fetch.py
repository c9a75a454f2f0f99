"""Fetches what a client names by its URL, from hosts that the operator allowed and addresses that are public.

Above it: the runtime. Below it: aiohttp, whose connector asks a resolver here, so that a name is resolved once and the
connection goes to the very address that was checked. Redirects are followed by hand, each checked as the first URL
was. Nothing of the environment counts: no proxies, no .netrc; no cookies are kept, and nothing compressed is unpacked.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from turnwire.server.media.addresses import AddressPolicy, PublicOnly, read_address
from turnwire.server.media.allowlist import allowed
from turnwire.server.media.config import MediaConfig
from turnwire.server.media.errors import MediaError
from turnwire.server.media.found import Fetched

_MAX_URL: Final = 8192
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHUNK: Final = 64 * 1024


class Forbidden(OSError):
    """A name stands for an address that nothing is fetched from."""


class UrlFetcher(Protocol):
    """Fetches what stands at URLs."""

    async def fetch(self, url: str, /) -> Fetched:
        """Returns what stands at a URL; raises MediaError. Safe to cancel."""
        ...

    async def aclose(self) -> None:
        """Closes all connections."""


class CheckedResolver(AbstractResolver):
    """Resolves names to addresses that may be connected to, or to none."""

    def __init__(self, inner: AbstractResolver, policy: AddressPolicy) -> None:
        """Takes who resolves, and who decides."""
        self._inner = inner
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Returns the addresses of a name. Safe to cancel.

        Raises:
            Forbidden: One of them may not be connected to: a name that has both kinds is not to be trusted.
            OSError: There are none.
        """
        found = await self._inner.resolve(host, port, family)
        for each in found:
            address = read_address(each["host"])
            if address is None or not self._policy.allows(address):
                raise Forbidden(host)
        return found

    async def close(self) -> None:
        """Closes who resolves."""
        await self._inner.close()


class Fetcher:
    """Fetches over HTTP. Belongs to one event loop."""

    def __init__(
        self,
        config: MediaConfig,
        *,
        resolver: AbstractResolver | None = None,
        addresses: AddressPolicy | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            config: Where from, and how much.
            resolver: Resolves names; by default the system does.
            addresses: Decides what may be connected to; by default what is public. Tests put theirs here, since all
                they have is loopback: there is no setting for it.
        """
        self._config = config
        self._resolver = resolver
        self._addresses = addresses or PublicOnly()
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str) -> Fetched:
        """Returns what stands at a URL. Safe to cancel.

        Raises:
            MediaError: `invalid_image_url` for a URL that is none or not allowed, `failed_to_download_image`, or
                `image_file_too_large`.
        """
        try:
            async with asyncio.timeout(self._config.timeout):
                return await self._follow(self._checked(url))
        except TimeoutError as error:
            seconds = f"{self._config.timeout:g}"
            raise _failed(f"it took longer than {seconds} s") from error
        except Forbidden as error:
            raise _failed("its host may not be asked") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Without what the error says: it may tell of addresses and ports that are nobody's business.
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            forbidden = isinstance(cause, Forbidden) or isinstance(cause.__cause__, Forbidden)
            raise _failed("its host may not be asked" if forbidden else "its host cannot be reached") from error

    async def aclose(self) -> None:
        """Closes all connections. Cancelling it may leave some open."""
        if self._session is not None:
            await self._session.close()

    async def _follow(self, url: URL) -> Fetched:
        for _ in range(self._config.max_redirects + 1):
            session = self._opened()
            async with session.get(url, allow_redirects=False) as response:
                if response.status not in _REDIRECTS:
                    return await self._body(response)
                location = response.headers.get("Location", "")
            url = self._checked(location, url)
        raise _failed(f"it leads on more than {self._config.max_redirects} times")

    def _checked(self, text: str, base: URL | None = None) -> URL:
        """Returns a URL that may be fetched, once its host turns out to be public."""
        try:
            url = URL(text) if len(text) <= _MAX_URL else None
            if url is not None and base is not None:
                url = base.join(url)
            scheme, host, port = (url.scheme, url.raw_host, url.port) if url is not None else ("", None, None)
        except ValueError:
            url, scheme, host, port = None, "", None, None
        if url is None or scheme not in ("http", "https") or not host or port is None:
            raise MediaError("invalid_image_url", "Expected a data: URL, or an absolute http(s) URL.")
        if url.raw_user is not None or url.raw_password is not None:
            raise MediaError("invalid_image_url", "URLs with a user or a password are not fetched.")
        if not allowed(self._config.urls, scheme, host.lower().rstrip("."), port):
            message = "This server does not fetch from the host of this URL. Send the content as a data: URL."
            raise MediaError("invalid_image_url", message)
        # Written as an address, a host is connected to without asking the resolver.
        address = read_address(host)
        if address is not None and not self._addresses.allows(address):
            raise Forbidden(host)
        return url.with_fragment(None)

    async def _body(self, response: aiohttp.ClientResponse) -> Fetched:
        if response.status != 200:
            raise _failed(f"its host answered {response.status}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _failed("it came compressed although that was not asked for")
        limit = self._config.max_bytes
        if (response.content_length or 0) > limit:
            raise _too_large(limit)
        data = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            data += chunk
            if len(data) > limit:
                raise _too_large(limit)
        media_type = response.content_type if "Content-Type" in response.headers else ""
        return Fetched(bytes(data), media_type.lower())

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = CheckedResolver(self._resolver or aiohttp.ThreadedResolver(), self._addresses)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=resolver, use_dns_cache=False, limit=self._config.max_connections, force_close=True
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "turnwire"},
                auto_decompress=False,
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session


def _failed(reason: str) -> MediaError:
    return MediaError("failed_to_download_image", f"The URL cannot be downloaded: {reason}.", reason=reason)


def _too_large(limit: int) -> MediaError:
    return MediaError("image_file_too_large", f"The URL leads to more than {limit} bytes.", limit=str(limit))
