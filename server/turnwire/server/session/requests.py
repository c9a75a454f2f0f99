"""Memory of request ids: a repeat is answered by its first outcome and never carried out twice."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from turnwire.server.session.limits import REQUEST_ID
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import reject

_ID: Final = re.compile(REQUEST_ID)

Replay = Callable[[], None]
"""Sends the outcome of a request once more, marked duplicate."""


class Remembered:
    """One request id."""

    __slots__ = ("digest", "replay")

    def __init__(self, digest: bytes) -> None:
        """Takes the hash of the request's body; there is no outcome yet."""
        self.digest = digest
        self.replay: Replay | None = None


class RequestMemory:
    """Remembers requests in flight, and a bounded number of those that have their outcome."""

    __slots__ = ("_limit", "_open", "_settled")

    def __init__(self, limit: int) -> None:
        """Takes how many settled requests are remembered."""
        self._limit = limit
        self._open: dict[str, Remembered] = {}
        self._settled: dict[str, Remembered] = {}

    def seen(self, request: ConnectRequest) -> bool:
        """Records a request id, or answers a repeat.

        Returns:
            True when the request is a repeat; it has been answered, or will be when the first one is.

        Raises:
            RequestError: `request_id_reused`: the id came with another body before.
        """
        request_id = request.request_id
        if not request_id:
            return False
        digest = _digest(request)
        known = self._open.get(request_id) or self._settled.get(request_id)
        if known is None:
            self._open[request_id] = Remembered(digest)
            return False
        if known.digest != digest:
            message = f"Request id '{request_id}' was used for another request. Use a new id for every new request."
            raise reject("request_id_reused", message, param="request_id")
        if known.replay is not None:
            known.replay()
        return True

    def settle(self, request_id: str, replay: Replay, *, final: bool = True) -> None:
        """Stores the outcome of a request.

        Args:
            request_id: The request; unknown and empty ids are ignored.
            replay: Sends the outcome again.
            final: False while the request is still at work (`created`, say): it is then remembered without bound, and
                a later outcome replaces this one.
        """
        known = self._open.get(request_id)
        if known is None:
            return
        known.replay = replay
        if final:
            del self._open[request_id]
            self._settled[request_id] = known
            if len(self._settled) > self._limit:
                del self._settled[next(iter(self._settled))]


def _digest(request: ConnectRequest) -> bytes:
    """Hashes what a request asks; its context may differ from one attempt to the next."""
    kind = request.WhichOneof("event") or ""
    digest = hashlib.blake2b(f"{kind}\0{request.lane}\0".encode(), digest_size=16)
    if kind:
        digest.update(getattr(request, kind).SerializeToString(deterministic=True))
    return digest.digest()


def check_request_id(request_id: str) -> None:
    """Checks the form of a request id; none is fine.

    Raises:
        RequestError: `invalid_value`.
    """
    if request_id and _ID.fullmatch(request_id) is None:
        message = "Invalid value for 'request_id': at most 128 printable ASCII characters without spaces."
        raise reject("invalid_value", message, param="request_id")
