"""data: URLs (RFC 2397) with base64, as images and files come in JSON.

Above it: `reader`. Below it: the errors. The size is checked before anything is decoded.
"""

from __future__ import annotations

import binascii
from base64 import b64encode
from typing import Final

_SCHEME: Final = "data:"


def is_data_url(url: str) -> bool:
    """Whether a URL holds its content itself."""
    return url[: len(_SCHEME)].lower() == _SCHEME


def split(url: str) -> tuple[str, str] | None:
    """Returns the media type of a data: URL, in lower case and without parameters, and its base64; None where there is
    none."""
    comma = url.find(",", 0, 1024)
    head = url[len(_SCHEME) : comma].lower().split(";") if comma >= 0 else []
    if len(head) < 2 or head[-1].strip() != "base64":
        return None
    return head[0].strip(), url[comma + 1 :]


def decoded_size(text: str) -> int:
    """Returns how many bytes base64 stands for, at most."""
    return len(text) // 4 * 3


def decode(text: str) -> bytes:
    """Decodes base64, with its padding and nothing else in it.

    Raises:
        ValueError: It is not that.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def data_url(media_type: str, data: bytes) -> str:
    """Returns the URL that holds some bytes."""
    return f"{_SCHEME}{media_type};base64,{b64encode(data).decode()}"
