"""What is wrong with an image or a file, before anybody says where it stood.

Above it: everything of this room. Below it: the error table. The codes are the public API's.
"""

from __future__ import annotations

from turnwire.v1.errors import RequestError, reject


class MediaError(Exception):
    """An image or a file cannot be taken."""

    def __init__(self, code: str, message: str, **metadata: str) -> None:
        """Takes a code of the error table, a sentence for people, and its variable parts."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.metadata = metadata

    def at(self, param: str) -> RequestError:
        """Returns the refusal of the parameter that it was read from."""
        return reject(self.code, self.message, param=param, **self.metadata)


def too_many_bytes(size: int, limit: int) -> MediaError:
    """Says that an image has too many bytes."""
    message = f"The image file is too large: {size} bytes of at most {limit}."
    return MediaError("image_file_too_large", message, size=str(size), limit=str(limit))
