"""Reads the images and files of new items: checks them, counts them, and makes the items that prompts read instead.

Above it: policy, which calls it for what is new and nothing else. Below it: everything that knows one kind of thing.
An item is kept as it came. Where an image came by its URL, prompts read it with its content, so that nobody fetches it
again, upstreams included; where a file is a text, they read the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.server.media.config import MEDIA, MediaConfig
from turnwire.server.media.data_url import data_url, decode, decoded_size, is_data_url, split
from turnwire.server.media.errors import MediaError, too_many_bytes
from turnwire.server.media.files import PDF, read_file
from turnwire.server.media.found import NOTHING, Fetched, Found, MediaWanted, Served, file_key
from turnwire.server.media.measure import MEDIA_TYPES, measure
from turnwire.server.media.parts import media_of
from turnwire.server.media.rule import TILES, ImageRule
from turnwire.v1.errors import reject
from turnwire.v1.item_pb2 import ContentPart, InputFile, InputImage, InputText, Item

_IMAGE_TYPES: Final = frozenset({*MEDIA_TYPES.values(), "image/jpg"})
"""What a data: URL may say that it holds; the last one is wrong and common."""


@dataclass(frozen=True, slots=True)
class Read:
    """An item with its images and files looked at."""

    item: Item
    """What prompts read: the item itself where nothing had to be changed."""
    tokens: int = 0
    """Of its images. Texts of files are part of the item's text; of PDFs nobody but the model knows."""
    parts: int = 0
    """Images and files that were looked at."""
    bytes: int = 0
    """Their size."""


class MediaReader:
    """Reads images and files. Safe to use from several threads at once."""

    def __init__(self, config: MediaConfig = MEDIA) -> None:
        """Takes the limits, and where content may come from."""
        self._config = config

    def require(self, items: Sequence[Item], found: Found = NOTHING) -> None:
        """Checks that everything is known that `read` will need.

        Raises:
            MediaWanted: Some URLs have to be looked at first.
            RequestError: There are too many images.
        """
        images: dict[str, None] = {}
        files: dict[str, None] = {}
        count = 0
        for index, item in enumerate(items):
            for path, part in media_of(item):
                count += 1
                if count > self._config.max_images:
                    limit = self._config.max_images
                    message = f"At most {limit} images and files are taken in one request."
                    raise reject("array_above_max_length", message, param=f"input[{index}].{path}", limit=str(limit))
                if part.HasField("input_image"):
                    url = part.input_image.image_url
                    if url and (self._config.service or (self._config.urls and not is_data_url(url))):
                        images[url] = None
                elif self._config.urls and part.input_file.file_url:
                    files[part.input_file.file_url] = None
        missing = tuple(url for url in images if url not in found)
        missing_files = tuple(url for url in files if file_key(url) not in found)
        if missing or missing_files:
            raise MediaWanted(missing, missing_files)

    def read(self, item: Item, index: int, rule: ImageRule = TILES, found: Found = NOTHING) -> Read:
        """Reads what an item holds.

        Args:
            item: The item, whose parts were checked for what they must have.
            index: Its place in the input.
            rule: How the model's images are counted.
            found: What is known of URLs.

        Raises:
            RequestError: An image or a file cannot be taken, with its path as `param`.
        """
        made: list[tuple[str, ContentPart]] = []
        tokens = parts = size = 0
        for path, part in media_of(item):
            parts += 1
            at = f"input[{index}].{path}"
            if part.HasField("input_image"):
                seen = self._image(part.input_image, at, rule, found)
            else:
                seen = self._file(part.input_file, at, found)
            tokens += seen.tokens
            size += seen.bytes
            if seen.part is not None:
                made.append((path, seen.part))
        return Read(_with(item, made), tokens, parts, size)

    def _image(self, image: InputImage, at: str, rule: ImageRule, found: Found) -> _Seen:
        url = image.image_url
        if not url:
            # An uploaded file, which only the official service knows.
            return _Seen()
        try:
            width, height, size, other = self._look(url, found)
        except MediaError as error:
            raise error.at(f"{at}.image_url") from error
        tokens = rule.tokens(width, height, image.detail or "auto")
        if not other:
            return _Seen(None, tokens, size)
        part = ContentPart()
        part.input_image.CopyFrom(image)
        part.input_image.image_url = other
        return _Seen(part, tokens, size)

    def _look(self, url: str, found: Found) -> tuple[int, int, int, str]:
        """Returns the width, the height and the bytes of an image, and the URL to read in place of its own, if any."""
        outcome = found.get(url)
        if isinstance(outcome, MediaError):
            raise outcome
        if isinstance(outcome, Served):
            return outcome.width, outcome.height, decoded_size(outcome.data_url or url), outcome.data_url
        if isinstance(outcome, Fetched):
            measured = measure(outcome.data, self._config)
            return measured.width, measured.height, len(outcome.data), data_url(measured.media_type, outcome.data)
        if not is_data_url(url):
            raise MediaError("invalid_image_url", not_fetched(url))
        data = image_data(url, self._config)
        measured = measure(data, self._config)
        return measured.width, measured.height, len(data), ""

    def _file(self, file: InputFile, at: str, found: Found) -> _Seen:
        key = "file_data" if file.file_data else "file_url"
        try:
            if file.file_data:
                media_type, data = _file_data(file.file_data, self._config)
            elif file.file_url:
                outcome = found.get(file_key(file.file_url))
                if isinstance(outcome, MediaError):
                    raise outcome
                if not isinstance(outcome, Fetched):
                    raise MediaError("invalid_value", not_fetched(file.file_url))
                media_type, data = outcome.media_type, outcome.data
            else:
                return _Seen()
            text = read_file(data, media_type, file.filename, self._config)
        except MediaError as error:
            raise error.at(f"{at}.{key}") from error
        if text is not None:
            return _Seen(ContentPart(input_text=InputText(text=text)), 0, len(data))
        if is_data_url(file.file_data):
            return _Seen(None, 0, len(data))
        part = ContentPart()
        part.input_file.CopyFrom(file)
        part.input_file.ClearField("file_url")
        part.input_file.file_data = data_url(PDF, data)
        return _Seen(part, 0, len(data))


@dataclass(frozen=True, slots=True)
class _Seen:
    """One image or file."""

    part: ContentPart | None = None
    """What prompts read in its place; None leaves it."""
    tokens: int = 0
    bytes: int = 0


def image_data(url: str, config: MediaConfig) -> bytes:
    """Returns the bytes of an image that came as a data: URL.

    Raises:
        MediaError: It says that it is none, is no base64, or is too large.
    """
    found = split(url)
    if found is None:
        raise MediaError("invalid_base64_image", "Expected the image as data:image/TYPE;base64,DATA.")
    media_type, text = found
    if media_type not in _IMAGE_TYPES:
        message = (
            f"Images of type '{media_type[:64]}' are not supported; {', '.join(sorted(MEDIA_TYPES.values()))} are."
        )
        raise MediaError("unsupported_image_media_type", message, media_type=media_type[:64])
    if not text:
        raise MediaError("empty_image_file", "The image file is empty.")
    if decoded_size(text) > config.max_bytes + 2:
        raise too_many_bytes(decoded_size(text), config.max_bytes)
    try:
        return decode(text)
    except ValueError as error:
        raise MediaError("invalid_base64_image", f"The image is not valid base64: {error}.") from error


def _file_data(text: str, config: MediaConfig) -> tuple[str, bytes]:
    """Returns the media type and the bytes of a file; older clients send base64 alone."""
    media_type = ""
    if is_data_url(text):
        found = split(text)
        if found is None:
            raise MediaError("invalid_value", "Expected the file as data:TYPE;base64,DATA.")
        media_type, text = found
    if decoded_size(text) > config.max_bytes + 2:
        message = f"The file is too large: {decoded_size(text)} bytes of at most {config.max_bytes}."
        raise MediaError("invalid_value", message, limit=str(config.max_bytes))
    try:
        return media_type, decode(text)
    except ValueError as error:
        raise MediaError("invalid_value", f"The file is not valid base64: {error}.") from error


def not_fetched(url: str) -> str:
    """Says why a URL is not read where nothing is fetched."""
    if url[:8].lower().startswith(("http://", "https://")):
        return "This server fetches nothing from URLs. Send the content as a data: URL."
    return "Expected a data: URL, or an http(s) URL where the server fetches them."


def _with(item: Item, made: Sequence[tuple[str, ContentPart]]) -> Item:
    """Returns an item with some parts replaced."""
    if not made:
        return item
    changed = Item()
    changed.CopyFrom(item)
    places = dict(media_of(changed))
    for path, part in made:
        places[path].CopyFrom(part)
    return changed
