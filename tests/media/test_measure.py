"""Images: good ones, bad ones, and those that only want to be decoded."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
import zlib
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from turnwire.server.media.config import MEDIA, MediaConfig
from turnwire.server.media.errors import MediaError
from turnwire.server.media.header import read_header
from turnwire.server.media.measure import Measured, measure

from .images import animated, chunk, image, noisy, png

MIB = 1024 * 1024


def refused(data: bytes, config: MediaConfig = MEDIA) -> str:
    with pytest.raises(MediaError) as caught:
        measure(data, config)
    return caught.value.code


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_an_image_is_measured_as_it_is(form: str) -> None:
    assert measure(image(form, 40, 30), MEDIA) == Measured(f"image/{form.lower()}", 40, 30)


def test_all_kinds_of_one_format_are_known() -> None:
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("WEBP", "RGB", {"lossless": True}),
        ("WEBP", "RGBA", {}),
        ("WEBP", "RGB", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}),
        ("JPEG", "RGB", {"progressive": True}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "L", {"restart_marker_blocks": 1}),
        ("PNG", "P", {}),
        ("PNG", "I;16", {}),
        ("PNG", "1", {}),
        ("GIF", "P", {"interlace": 0}),
    ]
    for form, mode, options in kinds:
        out = BytesIO()
        Image.new(mode, (33, 17)).save(out, form, **options)
        assert measure(out.getvalue(), MEDIA) == Measured(f"image/{form.lower()}", 33, 17), (form, mode, options)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_file_that_was_cut_short_is_damaged_wherever_it_was_cut(form: str) -> None:
    whole = noisy(form)
    for end in range(12, len(whole) * 9 // 10, len(whole) // 40):
        assert refused(whole[:end]) in ("image_parse_error", "image_too_small"), end


def test_nothing_and_what_is_no_image_are_told_apart() -> None:
    assert refused(b"") == "empty_image_file"
    for data in (b"hello", b"%PDF-1.7", b"<svg/>", b"BM" + bytes(60), b"II*\0" + bytes(60), b"\0" * 100):
        assert refused(data) == "invalid_image_format"


@pytest.mark.parametrize("form", ["PNG", "GIF", "WEBP"])
def test_images_that_move_are_refused(form: str) -> None:
    assert refused(animated(form)) == "invalid_image_format"


def test_limits_are_those_of_the_configuration() -> None:
    data = image("PNG", 40, 30)
    assert refused(data, MediaConfig(max_bytes=len(data) - 1)) == "image_file_too_large"
    assert refused(data, MediaConfig(max_pixels=1199)) == "image_too_large"
    assert refused(data, MediaConfig(max_side=39)) == "image_too_large"
    assert measure(data, MediaConfig(max_bytes=len(data), max_pixels=1200, max_side=40)).width == 40
    assert refused(png(0, 5)) == "image_too_small"


def gif(width: int, height: int, frame: tuple[int, int]) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    return head + b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\x02\x02\x44\x01\x00;"


def webp(width: int, height: int) -> bytes:
    body = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (width - 1).to_bytes(3, "little")
    body += (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def jpeg(width: int, height: int) -> bytes:
    return b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00\xff\xda"


BOMBS = {
    "a PNG that claims a hundred thousand squared": png(100_000, 100_000),
    "a JPEG that claims all it can": jpeg(65_535, 65_535),
    "a GIF whose frame is larger than its screen": gif(1, 1, (65_535, 65_535)),
    "a WebP whose canvas would be allocated when it is opened": webp(16_000, 16_000),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_claims_to_be_huge_costs_nothing(bomb: str) -> None:
    tracemalloc.start()
    try:
        assert refused(BOMBS[bomb]) == "image_too_large"
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


SCRIPT = """
import resource, sys
from turnwire.server.media.config import MEDIA
from turnwire.server.media.errors import MediaError
from turnwire.server.media.measure import measure
data = sys.stdin.buffer.read()
measure(bytes.fromhex({small!r}), MEDIA)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    measure(data, MEDIA)
    code = "taken"
except MediaError as error:
    code = error.code
print(code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def cost(data: bytes) -> tuple[str, int]:
    """Looks at an image in a process of its own; returns the outcome, and the MiB of memory that it took there."""
    script = SCRIPT.format(small=image().hex())
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True, timeout=50)
    code, mib = done.stdout.split()
    return code.decode(), int(mib)


def test_texts_that_unpack_to_gigabytes_are_not_unpacked() -> None:
    text = b"Comment\0\0" + zlib.compress(bytes(100 * MIB), 9)
    code, mib = cost(png(4, 3, chunk(b"zTXt", text), pixels=bytes(39)))
    assert code == "image_parse_error"
    assert mib < 40

    # Many that are small enough each: together they are limited too.
    text = b"Comment\0\0" + zlib.compress(bytes(MIB - 1), 9)
    code, mib = cost(png(4, 3, *[chunk(b"zTXt", text)] * 500, pixels=bytes(39)))
    assert code == "image_parse_error"
    assert mib < 130


def test_pixels_that_unpack_to_more_than_was_claimed_are_left_alone() -> None:
    code, mib = cost(png(4, 3, pixels=bytes(300 * MIB)))
    assert code in ("taken", "image_parse_error")
    assert mib < 40


def test_thousands_of_frames_are_not_looked_at() -> None:
    code, mib = cost(animated("GIF", 3000))
    assert code == "invalid_image_format"
    assert mib < 20


def test_the_largest_image_that_is_taken_has_a_known_cost() -> None:
    row = b"\0" + bytes(3 * 8000)
    packer = zlib.compressobj(1)
    pixels = b"".join(packer.compress(row) for _ in range(6000)) + packer.flush()
    head = struct.pack(">IIBBBBB", 8000, 6000, 8, 2, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    code, mib = cost(whole)
    assert code == "taken"
    assert mib < 260


PIECES = [image("PNG", 16, 16), image("JPEG", 16, 16), image("GIF", 16, 16), image("WEBP", 16, 16), gif(4, 4, (4, 4))]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(PIECES), st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=6)), max_size=6)
)
def test_whatever_is_changed_in_a_file_it_is_measured_or_refused(
    whole: bytes, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(whole)
    for at, change in changes:
        at %= len(data)
        data[at : at + len(change)] = change
    try:
        measured = measure(bytes(data), MediaConfig(max_pixels=1_000_000))
    except MediaError as error:
        code = error.code
    else:
        code = "" if 0 < measured.width * measured.height <= 1_000_000 else "taken"
    assert code in ("", "image_parse_error", "image_too_large", "image_too_small", "invalid_image_format")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(
        [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\x20\0\0\0WEBPVP8X", b"RIFF\x20\0\0\0WEBPVP8 "]
    ),
    st.binary(max_size=200),
)
def test_any_header_is_read_or_makes_no_sense(magic: bytes, rest: bytes) -> None:
    try:
        header = read_header(magic + rest)
    except ValueError:
        return
    assert header is None or header.width >= 0


def test_no_decoder_is_asked_for_a_format_that_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some run programs of their own.
    monkeypatch.delattr(Image, "open")
    for data in (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"#FIG 3.2", b"8BPS" + bytes(30)):
        assert refused(data) == "invalid_image_format"
