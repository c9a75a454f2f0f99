"""API keys: who a caller is, from a file of keys.

Above it: the doors, which pass on an authorization header, and `app`, which loads the file. Below it: the error table.
Only digests of keys are kept, so that no log, trace or memory dump of a ring shows one.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnwire.server.secret_file import read_secrets
from turnwire.v1.errors import RequestError, reject

_log: Final = logging.getLogger(__name__)

ANONYMOUS: Final = ""
"""The principal of everybody where no keys are asked for."""

_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_KEY: Final = re.compile(r"[\x21-\x39\x3b-\x7e]{8,512}")  # visible ASCII without the colon
_KEY_RULE: Final = "a key is 8 to 512 visible ASCII characters without spaces and colons"
_SHORT: Final = 20


class KeyFileError(ValueError):
    """A key file cannot be used; the text names the file and the line, and never shows a key."""


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: str
    digest: bytes
    line: int


class KeyRing:
    """The keys a server accepts, and whose they are."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[_Entry]) -> None:
        """Holds entries; use `load` or `parse`."""
        self._entries = tuple(entries)

    @classmethod
    def load(cls, path: Path) -> KeyRing:
        """Reads a key file; logs a warning if others can read it too.

        Raises:
            KeyFileError: It cannot be read, a line is wrong, or there is no key in it.
        """
        return cls.parse(read_secrets(path, "key file", KeyFileError), str(path))

    @classmethod
    def parse(cls, text: str, origin: str = "<keys>") -> KeyRing:
        """Reads the text of a key file: `principal:key` or `key` a line, `#` comments, blank lines.

        Raises:
            KeyFileError: A line is wrong, or there is no key.
        """
        entries: list[_Entry] = []
        seen: dict[bytes, int] = {}
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            entry = _entry(line, number, origin)
            if entry.digest in seen:
                msg = f"{origin}:{number}: the same key as in line {seen[entry.digest]}"
                raise KeyFileError(msg)
            seen[entry.digest] = number
            entries.append(entry)
        if not entries:
            msg = f"{origin}: holds no keys; write one a line, as principal:key"
            raise KeyFileError(msg)
        return cls(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self._entries)} keys>"

    @property
    def principals(self) -> frozenset[str]:
        """Everybody who has a key."""
        return frozenset(entry.principal for entry in self._entries)

    def authenticate(self, authorization: str | None) -> str:
        """Returns the principal whose key an authorization header shows.

        Raises:
            RequestError: `invalid_api_key`: the header is missing, malformed, or shows no key of this ring.
        """
        if not authorization:
            message = "You didn't provide an API key. Send it in the authorization header, as 'Bearer KEY'."
            raise _refusal(message)
        scheme, _, key = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            message = "The authorization header is not of the form 'Bearer KEY'."
            raise _refusal(message)
        digest = _digest(key.strip())
        principal: str | None = None
        # No early exit: neither whether a key is known nor which one it is shows in the time taken.
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                principal = entry.principal
        if principal is None:
            message = "Incorrect API key provided."
            raise _refusal(message)
        return principal


def authenticate(ring: KeyRing | None, authorization: str | None) -> str:
    """Returns the principal of a caller; without a ring everybody is `ANONYMOUS`.

    Raises:
        RequestError: `invalid_api_key`, see `KeyRing.authenticate`.
    """
    return ANONYMOUS if ring is None else ring.authenticate(authorization)


def _entry(line: str, number: int, origin: str) -> _Entry:
    principal, colon, key = line.partition(":")
    if not colon:
        principal, key = "", line
    key = key.strip()
    if not _KEY.fullmatch(key):
        msg = f"{origin}:{number}: {_KEY_RULE}"
        raise KeyFileError(msg)
    digest = _digest(key)
    if not colon:
        principal = digest.hex()[:12]
    elif not _PRINCIPAL.fullmatch(principal.strip()):
        msg = f"{origin}:{number}: a principal is 1 to 64 letters, digits and _ . @ -"
        raise KeyFileError(msg)
    if len(key) < _SHORT:
        _log.warning("%s:%d: this key is short enough to be guessed; use 20 random characters or more", origin, number)
    return _Entry(principal.strip(), digest, number)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _refusal(message: str) -> RequestError:
    return reject("invalid_api_key", message)
