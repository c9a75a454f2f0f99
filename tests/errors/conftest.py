"""Doors for the tests of what goes wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.errors.doors import DOORS, Entrance, entering


@pytest.fixture(params=DOORS)
async def entrance(request: pytest.FixtureRequest) -> AsyncIterator[Entrance]:
    """A server with nothing special about it, by each of its doors."""
    async with entering(request.param) as entrance:
        yield entrance
