"""The files of an engine's tokenizer, as it sends them: a zip in pieces, with its hash on the last.

Above it: the adapters, and whoever makes a renderer of them. What arrives is checked before it is used, and bounded.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Final, Protocol

from turnwire.server.engine.tokens.port import EngineStartError

MAX_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of an archive and of what is in it; the largest tokenizers take about 40 MB."""


class Piece(Protocol):
    """A message of GetTokenizer."""

    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class TokenizerBundle:
    """What an engine tokenizes with."""

    files: dict[str, bytes]
    """By name, without folders: `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` and others."""
    sha256: str
    """Of the archive, as the engine announced it. Not of the files: an archive's dates are part of it."""


async def read_bundle(source: str, pieces: AsyncIterable[Piece]) -> TokenizerBundle:
    """Puts an archive together and reads it. Safe to cancel.

    Args:
        source: Who sends it, for messages.
        pieces: The messages.

    Raises:
        EngineStartError: It is incomplete, no archive, or too large.
    """
    data = bytearray()
    announced = ""
    async for piece in pieces:
        data += piece.data
        announced = piece.sha256 or announced
        if len(data) > MAX_BYTES:
            msg = f"{source}: its tokenizer is over {MAX_BYTES} bytes"
            raise EngineStartError(msg)
    found = hashlib.sha256(data).hexdigest()
    if announced and announced != found:
        msg = f"{source}: its tokenizer arrived damaged: SHA-256 {found} instead of {announced}"
        raise EngineStartError(msg)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_BYTES:
                msg = f"{source}: its tokenizer unpacks to over {MAX_BYTES} bytes"
                raise EngineStartError(msg)
            files = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        msg = f"{source}: its tokenizer is no archive that can be read: {error}"
        raise EngineStartError(msg) from error
    return TokenizerBundle(files, found)
