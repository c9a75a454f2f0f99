"""How many tokens an image is: the rule that the public API publishes, with the numbers of one model.

Above it: profiles of models, and `reader`. Below it: nothing. The rule is the one of the guide "Images and vision",
section "Calculating costs" (https://platform.openai.com/docs/guides/images-vision), in its two forms: tiles of 512
pixels for most models, patches of 32 pixels for the small ones. docs/images.md repeats it with examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["tile", "patch"]

_SQUARE: Final = 2048
_SHORT_SIDE: Final = 768
_TILE: Final = 512
_PATCH: Final = 32


@dataclass(frozen=True, slots=True)
class ImageRule:
    """The numbers of one model."""

    kind: Kind = "tile"
    base: int = 85
    """Tiles: tokens of every image, and all that `low` detail costs."""
    tile: int = 170
    """Tiles: tokens of each of them."""
    budget: int = 1536
    """Patches: most that an image may have; a larger one counts as if it was scaled down to fit."""
    multiplier: float = 1.0
    """Patches: tokens of each of them."""

    def tokens(self, width: int, height: int, detail: str = "auto") -> int:
        """Returns the tokens of an image.

        Args:
            width: In pixels, at least 1.
            height: In pixels, at least 1.
            detail: `low`, or anything else for `high`: `auto` leaves the choice to the model, which takes the high one,
                and the rule knows no third size for `original`. Patches know only one.
        """
        if self.kind == "patch":
            return math.ceil(round(_patches(width, height, self.budget) * self.multiplier, 6))
        return self.base if detail == "low" else self.base + self.tile * _tiles(width, height)


TILES: Final = ImageRule()
"""The rule of a model that nobody said anything about."""


def _tiles(width: float, height: float) -> int:
    """Counts the tiles that cover an image once it fits a square of 2,048 and its shorter side is 768 at most.

    Images are only ever scaled down.
    """
    scale = min(1.0, _SQUARE / max(width, height))
    scale *= min(1.0, _SHORT_SIDE / (min(width, height) * scale))
    return _cover(width * scale, _TILE) * _cover(height * scale, _TILE)


def _patches(width: float, height: float, budget: int) -> int:
    """Counts the patches that cover an image; above the budget, once it was scaled down to whole patches within it."""
    needed = _cover(width, _PATCH) * _cover(height, _PATCH)
    if needed <= budget:
        return needed
    shrink = math.sqrt(_PATCH * _PATCH * budget / (width * height))
    across, down = width * shrink / _PATCH, height * shrink / _PATCH
    shrink *= min((math.floor(across) or across) / across, (math.floor(down) or down) / down)
    return min(budget, _cover(width * shrink, _PATCH) * _cover(height * shrink, _PATCH))


def _cover(length: float, unit: int) -> int:
    # What scaling made whole must not need one more for the last bit of a float.
    return max(1, math.ceil(round(length / unit, 9)))
