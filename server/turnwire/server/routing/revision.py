"""A number that tells caches when what they know is old.

Above it: whoever keeps what was resolved, and whoever changes what names stand for: reloads, engines whose models
change, and upstreams that fail.
"""

from __future__ import annotations


class Revision:
    """Shared by all that belong to one server."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        """Begins at 0."""
        self.number = 0

    def bump(self) -> None:
        """Makes everything old that was kept with an earlier number."""
        self.number += 1
