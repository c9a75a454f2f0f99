"""What was found out about URLs before a request is checked: their content, or why there is none.

Above it: `reader`, which asks for it and goes on with it, and the runtime, which brings it. Below it: the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from turnwire.server.media.errors import MediaError


@dataclass(frozen=True, slots=True)
class Fetched:
    """What stood at a URL, not looked at."""

    data: bytes
    media_type: str
    """As the server there said; empty where it said nothing."""


@dataclass(frozen=True, slots=True)
class Served:
    """What an image service says of an image."""

    width: int
    height: int
    """In pixels."""
    data_url: str
    """The image itself; empty where it came as one."""


Outcome = Fetched | Served | MediaError
Found = Mapping[str, Outcome]
"""By URL; of files, by `file_key`, since an image service is asked for images only."""

NOTHING: Final[Found] = MappingProxyType({})


def file_key(url: str) -> str:
    """Returns the key of a file."""
    return f"file {url}"


class MediaWanted(Exception):
    """A request cannot be checked before something is known of some URLs. Not an error: the checks begin again then."""

    def __init__(self, images: tuple[str, ...], files: tuple[str, ...]) -> None:
        """Takes the URLs of images and those of files, each once."""
        super().__init__(f"{len(images) + len(files)} URLs")
        self.images = images
        self.files = files
