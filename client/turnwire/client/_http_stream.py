"""The messages of a one-shot method that streams, over HTTP.

Below: aiohttp, which is needed for such addresses only, and the form of `frames`, which the answer's body has. Above:
`_http_channel`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from turnwire.client.exceptions import ProtocolError, RequestRejectedError, RpcFailedError
from turnwire.v1.error_pb2 import Error
from turnwire.v1.official.frames import ERROR, FRAMES, HEAD, MESSAGE

if TYPE_CHECKING:
    import aiohttp


class HttpStream:
    """The messages of a method that streams. To be iterated once, by one task; `cancel` may come from any."""

    def __init__(
        self,
        path: str,
        post: Callable[[], AbstractAsyncContextManager[aiohttp.ClientResponse]],
        deserialize: Callable[[bytes], Any],
        limit: int,
    ) -> None:
        """Takes the method, what sends the request, at the first step of the iteration, what reads a message, and the
        largest message in bytes."""
        self._path: Final = path
        self._post: Final = post
        self._deserialize: Final = deserialize
        self._limit: Final = limit
        self._answer: aiohttp.ClientResponse | None = None
        self._cancelled = False
        self._messages: Final = self._read()

    def __aiter__(self) -> AsyncIterator[Any]:
        """Yields the messages. Cancelling it, as leaving it, ends the call.

        Raises:
            TurnwireError: The call was refused, or failed.
        """
        return self._messages

    def cancel(self) -> None:
        """Ends the call. Idempotent."""
        self._cancelled = True
        if self._answer is not None:
            self._answer.close()

    async def _read(self) -> AsyncGenerator[Any, None]:
        self._check_cancelled()
        import aiohttp

        try:
            async with self._post() as self._answer:
                self._check_cancelled()
                if self._answer.content_type != FRAMES:
                    msg = f"the answer to {self._path} is no stream of turnwire.v1"
                    raise ProtocolError(msg)
                async for kind, data in self._frames(self._answer):
                    yield self._message(kind, data)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._check_cancelled()
            raise unreachable(error) from error

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise RpcFailedError("CANCELLED", "the call was cancelled")

    async def _frames(self, answer: aiohttp.ClientResponse) -> AsyncGenerator[tuple[int, bytes], None]:
        buffer = bytearray()
        async for chunk in answer.content.iter_any():
            buffer += chunk
            at = 0
            while len(buffer) - at >= HEAD.size:
                kind, size = HEAD.unpack_from(buffer, at)
                if size > self._limit:
                    raise RpcFailedError("RESOURCE_EXHAUSTED", f"a message has more than {self._limit} bytes")
                end = at + HEAD.size + size
                if len(buffer) < end:
                    break
                yield kind, bytes(memoryview(buffer)[at + HEAD.size : end])
                at = end
            del buffer[:at]
        if buffer:
            raise self._broken()

    def _message(self, kind: int, data: bytes) -> Any:
        try:
            if kind == ERROR:
                raise RequestRejectedError(Error.FromString(data))
            if kind == MESSAGE:
                return self._deserialize(data)
        except DecodeError as error:
            raise self._broken() from error
        raise self._broken()

    def _broken(self) -> ProtocolError:
        return ProtocolError(f"a message of {self._path} is none of turnwire.v1")


def unreachable(error: Exception) -> RpcFailedError:
    """Returns the exception for a connection that could not be made or was lost."""
    return RpcFailedError("UNAVAILABLE", str(error) or type(error).__name__)
