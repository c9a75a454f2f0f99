"""What plays whole rollouts: a client of another language in a process of its own; or `play` itself, with a driver.

Above it: `play`. Below it: `grpc_node`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from turnwire.bench.drivers.records import RolloutRecord
from turnwire.bench.scenario.values import Load, Scenario


@runtime_checkable
class Whole(Protocol):
    """Plays rollouts; turns are compared with the scenario when the records are collected."""

    @property
    def pid(self) -> int:
        """The process that is the client, once started."""
        ...

    async def start(self, scenario: Scenario) -> None:
        """Starts the process, connects for the scenario's load, and plays the first turn once.

        When cancelled, `close` has to follow.

        Raises:
            Failed: It did not work; the process's own words are in the text or on standard error.
        """
        ...

    async def play(self, load: Load, seed: int) -> None:
        """Plays all rollouts; `seed` is of the moments at which they begin, where they begin at random. Cancelling it
        keeps what there is.

        Raises:
            Failed: The process ended, or cannot play such a load.
        """
        ...

    async def collect(self) -> list[RolloutRecord]:
        """Returns all rollouts that were begun, in that order; after `play`, ended or cancelled.

        Raises:
            Failed: The process ended.
        """
        ...

    async def close(self) -> None:
        """Disconnects and ends the process. Cancelling it leaves the process to end by itself."""
        ...
