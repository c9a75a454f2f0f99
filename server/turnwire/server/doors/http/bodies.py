"""Bodies of requests: read within bounds, and decompressed within bounds.

Above it: `server`. Below it: aiohttp, zlib and zstd. A body is bounded twice, since a few kilobytes can decompress to
gigabytes.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import HttpVersion11, web

from turnwire.server.doors.http.options import HttpOptions
from turnwire.server.runtime.threads import THREAD_BYTES
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.json.refusal import shown
from turnwire.v1.official.messages import too_large

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class _Decompressor(Protocol):
    """What zlib and zstd have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the data was found."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the end."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Returns at most so many bytes of what the data stand for."""
        ...


_DECOMPRESSORS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "gzip": lambda: zlib.decompressobj(_GZIP_OR_ZLIB),
    "x-gzip": lambda: zlib.decompressobj(_GZIP_OR_ZLIB),
    "deflate": lambda: zlib.decompressobj(_GZIP_OR_ZLIB),
    "zstd": zstd.ZstdDecompressor,
}


async def read_body(request: web.BaseRequest, options: HttpOptions) -> bytes:
    """Reads the body of a request, decompressed. Cancelling it leaves the body half read.

    Raises:
        RequestError: `request_too_large`, `unsupported_content_type` for an encoding that is not known, or
            `invalid_request_error` for a body that cannot be decompressed or does not come.
    """
    limit = options.max_body_bytes
    if (request.content_length or 0) > limit:
        raise too_large(limit)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "") and encoding not in _DECOMPRESSORS:
        known = ", ".join(sorted(_DECOMPRESSORS))
        message = f"Unsupported content encoding: '{shown(encoding)}'. Known here are {known}; one at a time."
        raise reject("unsupported_content_type", message, content_encoding=shown(encoding))
    await _encourage(request)
    data = await _read(request, limit, options.body_timeout)
    make = _DECOMPRESSORS.get(encoding)
    if make is None:
        return data
    # The size of what comes out is not known before.
    if len(data) > THREAD_BYTES // 8:
        return await asyncio.to_thread(decompress, make, data, limit)
    return decompress(make, data, limit)


async def _encourage(request: web.BaseRequest) -> None:
    """Tells a client that it may send its body where it waits for that (RFC 9110, section 10.1.1): curl does with more
    than a megabyte, and waits for a second; others wait longer."""
    if request.headers.get("expect", "").strip().lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # It is no part of the answer.
        request.writer.output_size = 0


async def _read(request: web.BaseRequest, limit: int, patience: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(patience) as silence:
            while piece := await request.content.readany():
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                pieces.append(piece)
                silence.reschedule(loop.time() + patience)
    except TimeoutError:
        message = f"The body of the request did not come: nothing for {patience:g} s."
        raise reject("invalid_request_error", message) from None
    except web.RequestPayloadError:
        raise reject("invalid_request_error", "The body of the request is not what its headers say.") from None
    return b"".join(pieces)


def decompress(make: Callable[[], _Decompressor], data: bytes, limit: int) -> bytes:
    """Decompresses a body, whose parts may follow one another.

    Args:
        make: Makes a decompressor for one part.
        data: The compressed body.
        limit: Most bytes that may come out.

    Raises:
        RequestError: `request_too_large`, or `invalid_request_error` for data that are not compressed so.
    """
    pieces: list[bytes] = []
    room = limit + 1
    while data:
        part = make()
        try:
            pieces.append(part.decompress(data, room))
        except (zlib.error, zstd.ZstdError):
            raise _broken() from None
        room -= len(pieces[-1])
        if room <= 0:
            raise too_large(limit)
        if not part.eof:
            raise _broken()
        data = part.unused_data
    return b"".join(pieces)


def _broken() -> RequestError:
    message = "The body of the request could not be decompressed: it is not what 'Content-Encoding' says, or cut short."
    return reject("invalid_request_error", message)
