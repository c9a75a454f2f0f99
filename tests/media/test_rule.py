"""The published rule, by its published examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.media.rule import ImageRule

TILE = ImageRule()
PATCH = ImageRule("patch")
SIDES = st.integers(1, 40_000)


@pytest.mark.parametrize(
    ("width", "height", "detail", "tokens"),
    [
        (1024, 1024, "high", 765),
        (2048, 4096, "high", 1105),
        (4096, 8192, "low", 85),
        (1024, 1024, "auto", 765),
        (1024, 1024, "original", 765),
        # Never scaled up: a small one is one tile.
        (128, 64, "high", 255),
        (512, 512, "high", 255),
        (513, 512, "high", 425),
        (1, 40_000, "high", 85 + 4 * 170),
    ],
)
def test_tiles_are_counted_as_published(width: int, height: int, detail: str, tokens: int) -> None:
    assert TILE.tokens(width, height, detail) == tokens


@pytest.mark.parametrize(
    ("width", "height", "multiplier", "tokens"),
    [
        (1024, 1024, 1.0, 1024),
        (1800, 2400, 1.0, 1452),
        (1024, 1024, 1.62, 1659),
        (2048, 768, 1.2, 1844),
        (1, 1, 1.0, 1),
        (1, 60_000, 1.0, 1536),
    ],
)
def test_patches_are_counted_as_published(width: int, height: int, multiplier: float, tokens: int) -> None:
    assert ImageRule("patch", multiplier=multiplier).tokens(width, height) == tokens


def test_models_have_numbers_of_their_own() -> None:
    assert ImageRule(base=70, tile=140).tokens(1024, 1024) == 70 + 4 * 140
    assert ImageRule(base=70, tile=140).tokens(1024, 1024, "low") == 70


@given(SIDES, SIDES)
def test_turning_an_image_changes_nothing_and_there_is_a_most(width: int, height: int) -> None:
    for rule, most in ((TILE, 85 + 170 * 8), (PATCH, 1536)):
        assert rule.tokens(width, height) == rule.tokens(height, width)
        assert 1 <= rule.tokens(width, height) <= most
