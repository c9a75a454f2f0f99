"""Seals: what a server gives its clients to keep for it, and takes back only as it gave it.

Above: `policy`, which opens what clients replay, the runtime, which lets the core seal, and `app`, which loads keys.
Below: AES-256-GCM of the package `cryptography`. A sealed text is

    tws1. base64url( key id, 8 bytes | nonce, 12 bytes | ciphertext and tag )

with the purpose and the principal as associated data, so that nobody can use what another was given, nor for something
else. Nonces are random: a key should seal no more than 2^32 times (NIST SP 800-38D, 8.3), which is 136 years at one a
second. Keys and what was sealed never stand in a log, an error or a `repr`.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnwire.server.secret_file import read_secrets

_PREFIX: Final = "tws1."
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_RULE: Final = "expected a key of 32 bytes as base64 or hex; openssl rand -base64 32 makes one"


class SealFileError(ValueError):
    """A file of seal keys cannot be used; the text names the file and the line, and never shows a key."""


class Purpose(enum.StrEnum):
    """What is sealed."""

    REASONING = "reasoning"
    COMPACTION = "compaction"


class Unreadable(enum.Enum):
    """Why a sealed text cannot be opened."""

    FOREIGN = "foreign"
    """Not of this form, or by a key that is not known here: another server's, or one of an earlier process."""
    DAMAGED = "damaged"
    """Names a known key but is not what was sealed by it for this principal and purpose."""


class Seals:
    """Seals with the newest of its keys and opens with all of them. Safe to use from several threads."""

    __slots__ = ("_ciphers", "_newest")

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Takes the keys, at least one of 32 bytes each; the first one seals."""
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._newest = _key_id(keys[0])

    @classmethod
    def fresh(cls) -> Seals:
        """Makes seals with a random key, which nobody else has: what they seal is lost with the process."""
        return cls((os.urandom(_KEY_BYTES),))

    @classmethod
    def load(cls, path: Path) -> Seals:
        """Reads a file of keys; logs a warning if others can read it too.

        Raises:
            SealFileError: It cannot be read, a line is wrong, or there is no key in it.
        """
        return cls.parse(read_secrets(path, "seal key file", SealFileError), str(path))

    @classmethod
    def parse(cls, text: str, origin: str = "<keys>") -> Seals:
        """Reads the text of a file of keys: one a line, the newest first, `#` comments, blank lines.

        Raises:
            SealFileError: A line is wrong, or there is no key.
        """
        keys: dict[bytes, int] = {}
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            key = _key(line)
            if key is None:
                msg = f"{origin}:{number}: {_KEY_RULE}"
                raise SealFileError(msg)
            if key in keys:
                msg = f"{origin}:{number}: the same key as in line {keys[key]}"
                raise SealFileError(msg)
            keys[key] = number
        if not keys:
            msg = f"{origin}: holds no keys; {_KEY_RULE}"
            raise SealFileError(msg)
        return cls(tuple(keys))

    def __repr__(self) -> str:
        return f"<Seals of {len(self._ciphers)} keys>"

    def seal(self, purpose: Purpose, principal: str, data: bytes) -> str:
        """Seals data for a principal; never the same text twice. It is a third larger, and 53 characters."""
        nonce = os.urandom(_NONCE_BYTES)
        closed = self._ciphers[self._newest].encrypt(nonce, data, _bound(purpose, principal))
        return _PREFIX + base64.urlsafe_b64encode(self._newest + nonce + closed).rstrip(b"=").decode()

    def open(self, purpose: Purpose, principal: str, text: str) -> bytes | Unreadable:
        """Returns what was sealed, or why that cannot be told. Takes any text."""
        raw = _decoded(text)
        if raw is None:
            return Unreadable.FOREIGN
        cipher = self._ciphers.get(raw[:_ID_BYTES])
        if cipher is None:
            return Unreadable.FOREIGN
        nonce, closed = raw[_ID_BYTES : _ID_BYTES + _NONCE_BYTES], raw[_ID_BYTES + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, closed, _bound(purpose, principal))
        except InvalidTag:
            return Unreadable.DAMAGED


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"turnwire seal key id\0" + key).digest()[:_ID_BYTES]


def _bound(purpose: Purpose, principal: str) -> bytes:
    return f"{_PREFIX}{purpose}\0{principal}".encode()


def _key(line: str) -> bytes | None:
    """Reads a key as hex or base64, of either alphabet; None where it is neither, or of another length."""
    try:
        key = bytes.fromhex(line) if len(line) == 2 * _KEY_BYTES else _base64(line.replace("+", "-").replace("/", "_"))
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _decoded(text: str) -> bytes | None:
    if not text.startswith(_PREFIX):
        return None
    try:
        raw = _base64(text[len(_PREFIX) :])
    except ValueError:
        return None
    return raw if len(raw) >= _ID_BYTES + _NONCE_BYTES + _TAG_BYTES else None


def _base64(text: str) -> bytes:
    stripped = text.rstrip("=")
    try:
        return base64.b64decode(stripped + "=" * (-len(stripped) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        msg = "not base64"
        raise ValueError(msg) from error
