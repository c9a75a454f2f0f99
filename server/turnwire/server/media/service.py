"""Asks an image service in place of looking at images here: the hop that looking in process saves.

Above it: the runtime, where `inline-images` is switched off. Below it: aiohttp. The service takes `POST /v1/images`
with `{"image_url": ...}` and answers `{"width", "height", "tokens", "data_url"}`, or a 4xx with
`{"error": {"code", "message", "metadata"}}`; `turnwire.bench.image_service` is one. How many tokens an image has is up
to the model's rule, so that answers are the same with it and without it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp
import msgspec

from turnwire.server.media.config import MediaConfig
from turnwire.server.media.errors import MediaError
from turnwire.server.media.found import Served
from turnwire.v1.errors import ERRORS

PATH: Final = "/v1/images"
_MAX_ANSWER: Final = 64 * 1024 * 1024


class _Image(msgspec.Struct):
    width: int
    height: int
    data_url: str = ""


class _Error(msgspec.Struct):
    code: str
    message: str
    metadata: dict[str, str] = {}


class _Refused(msgspec.Struct):
    error: _Error


class ImageService:
    """An image service. Belongs to one event loop."""

    def __init__(self, config: MediaConfig) -> None:
        """Connects to nothing yet; `config.service` says where it is."""
        self._config = config
        self._url = config.service.rstrip("/") + PATH
        self._session: aiohttp.ClientSession | None = None

    async def look(self, url: str) -> Served:
        """Returns what the service says of an image. Safe to cancel.

        Raises:
            MediaError: The service refuses the image, cannot be reached, or answers nonsense.
        """
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._config.max_connections)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        body = msgspec.json.encode({"image_url": url})
        headers = {"Content-Type": "application/json"}
        try:
            # The service may fetch for as long as this server would.
            async with asyncio.timeout(self._config.timeout + 1):
                async with self._session.post(self._url, data=body, headers=headers) as response:
                    status, answer = response.status, await response.content.read(_MAX_ANSWER)
                    while more := await response.content.read(_MAX_ANSWER):
                        answer += more
                        if len(answer) > _MAX_ANSWER:
                            raise _unavailable()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable() from error
        try:
            if status == 200:
                image = msgspec.json.decode(answer, type=_Image)
                if image.width > 0 and image.height > 0:
                    return Served(image.width, image.height, "" if image.data_url == url else image.data_url)
            elif 400 <= status < 500:
                refused = msgspec.json.decode(answer, type=_Refused).error
                if refused.code in ERRORS:
                    raise MediaError(refused.code, refused.message, **refused.metadata)
        except msgspec.MsgspecError as error:
            raise _unavailable() from error
        raise _unavailable()

    async def aclose(self) -> None:
        """Closes all connections. Cancelling it may leave some open."""
        if self._session is not None:
            await self._session.close()


def _unavailable() -> MediaError:
    return MediaError("server_error", "The image service is not available.")
