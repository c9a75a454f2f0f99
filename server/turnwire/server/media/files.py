"""Files: texts become text, which every model reads; PDFs are carried to whoever can read them.

Above it: `reader`. Below it: the errors.
"""

from __future__ import annotations

import mimetypes
from typing import Final

from turnwire.server.media.config import MediaConfig
from turnwire.server.media.errors import MediaError

PDF: Final = "application/pdf"
MAX_TEXT: Final = 10_485_760
"""Characters of a text, as everywhere."""

_TEXTS: Final = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/jsonl",
        "application/sql",
        "application/toml",
        "application/typescript",
        "application/x-ndjson",
        "application/x-python",
        "application/x-sh",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
"""Types that are text without saying so in their name."""


def read_file(data: bytes, media_type: str, filename: str, config: MediaConfig) -> str | None:
    """Returns what a text says, under the file's name; None for a PDF, which is looked at no further.

    Args:
        data: The file.
        media_type: As it was said; empty goes by the name, then by the content.
        filename: Its name; empty for none.
        config: The limits.

    Raises:
        MediaError: It can neither be read nor carried.
    """
    if not data:
        raise MediaError("invalid_value", "The file is empty.")
    if len(data) > config.max_bytes:
        message = f"The file is too large: {len(data)} bytes of at most {config.max_bytes}."
        raise MediaError("invalid_value", message, size=str(len(data)), limit=str(config.max_bytes))
    if media_type in ("", "application/octet-stream", "binary/octet-stream"):
        media_type = mimetypes.guess_type(filename)[0] or ""
    if media_type == PDF or (not media_type and data.startswith(b"%PDF-")):
        if b"%PDF-" not in data[:1024]:
            raise MediaError("invalid_value", "The file is not the PDF that it is said to be.")
        return None
    if media_type and not _is_text(media_type):
        message = f"Files of type '{media_type[:64]}' are not supported; texts and PDFs are."
        raise MediaError("invalid_value", message, media_type=media_type[:64])
    return _text(data, filename)


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


def _text(data: bytes, filename: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"The file is no text in UTF-8: byte {error.start} cannot be read."
        raise MediaError("invalid_value", message, position=str(error.start)) from error
    if "\0" in text:
        raise MediaError("invalid_value", "The file is no text: it holds a null character.")
    if len(text) > MAX_TEXT:
        message = f"The file's text is too long: {len(text)} characters of at most {MAX_TEXT}."
        raise MediaError("string_above_max_length", message, length=str(len(text)), limit=str(MAX_TEXT))
    return f"File '{filename}':\n\n{text}" if filename else text
