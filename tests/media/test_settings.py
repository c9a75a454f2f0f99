"""What operators say of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.server.config import ConfigError
from turnwire.server.media.config import MediaConfig
from turnwire.server.settings import load_config


def test_images_are_looked_at_here_and_fetched_from_nowhere_by_default() -> None:
    config = load_config({}, {})

    assert config.media == MediaConfig()
    assert not config.media.urls
    assert "inline-images" not in config.disable


def test_flags_variables_and_files_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "turnwire.toml"
    file.write_text(
        'disable = ["inline-images"]\n[images]\nurls = ["*.a.com", "b.com:81"]\nservice = "http://h:1"\n'
        'max_bytes = "1MiB"\nmax_pixels = 9\ntimeout = "2s"\n',
        encoding="utf-8",
    )
    flags = load_config(
        {"images.urls": ("*.a.com,b.com:81",), "images.service": "http://h:1", "disable": ("inline-images",)},
        {"TURNWIRE_IMAGES_MAX_BYTES": "1MiB", "TURNWIRE_IMAGES_MAX_PIXELS": "9", "TURNWIRE_IMAGES_TIMEOUT": "2s"},
    )

    assert load_config({"config": str(file)}, {}).media == flags.media
    assert [str(pattern) for pattern in flags.media.urls] == ["*.a.com", "b.com:81"]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"images.urls": ("http://a.com",)}, "--image-urls: expected a host"),
        ({"images.service": "h:1"}, "--image-service: expected the URL of a service"),
        ({"images.service": "http://u:p@h"}, "--image-service: expected the URL of a service"),
        ({"disable": ("inline-images",)}, "--disable: without inline-images, --image-service has to be given"),
    ],
)
def test_mistakes_are_named(flags: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(flags, {})
    assert [each[: len(problem)] for each in caught.value.problems] == [problem]
