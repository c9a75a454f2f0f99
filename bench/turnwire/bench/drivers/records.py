"""What one run of a driver is told, and what it tells.

Above it: the runner and `play`, which exchange these as msgpack. Below it: the scenario and the figures. Times are
seconds, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from turnwire.bench.metrics.turns import TurnFigures
from turnwire.bench.scenario.values import Scenario


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one driver over a whole scenario."""

    driver: str
    scenario: Scenario
    seed: int
    """Of the moments at which rollouts begin, where they begin at random: the same for all drivers of a repetition."""
    grpc: str
    http: str
    bridge: str
    stats: str
    """Where the proxy tells what passed."""
    ca: str
    """File of the certificate to trust, PEM; empty for plaintext."""
    processes: dict[str, int]
    """Process ids by what they are: `server`, `proxy`, `bridge`."""
    pieces: bool = False
    """Whether to note each piece of text, of turns that say nothing but text."""


@dataclass(slots=True)
class RolloutRecord:
    """One rollout."""

    took: float = 0.0
    """From its beginning to the last terminal event of all its lanes."""
    start_lag: float = 0.0
    """How late it began against the plan."""
    turns: list[TurnFigures] = field(default_factory=list[TurnFigures])
    """In order; those of lanes that were forked follow one another."""
    lags: list[float] = field(default_factory=list[float])
    """How late each next request was made, against the end of the tools before it."""
    failure: str = ""
    """Why it did not end well."""
    pieces: list[list[tuple[float, int]]] = field(default_factory=list[list[tuple[float, int]]])
    """Of each turn's text, if asked for: when each piece came after the request, and its characters."""


@dataclass(slots=True)
class RunRecord:
    """One run."""

    driver: str
    rollouts: list[RolloutRecord] = field(default_factory=list[RolloutRecord])
    wall: float = 0.0
    tokens: int = 0
    """That the model said, by the scenario, in the rollouts that ended well."""
    turns: int = 0
    """Of those."""
    cpu: dict[str, float] = field(default_factory=dict[str, float])
    """CPU time by process, the `client` among them."""
    memory: dict[str, int] = field(default_factory=dict[str, int])
    """Resident bytes by process at the end, and `server_peak`; with idle sessions `server_before` and `server_idle`."""
    bytes_up: int = 0
    bytes_down: int = 0
    connections: int = 0
    """That were made during the run."""
    lateness: dict[str, float] = field(default_factory=dict[str, float])
    """Of the proxy against what it was set to, since it started; see `network.proxy.Lateness`."""
    load_before: float = 0.0
    """The machine's load average over a minute."""
    failure: str = ""
    """Why the run did not come to its end; what there was until then is here."""

    @property
    def failed(self) -> int:
        """Rollouts that did not end well."""
        return sum(1 for rollout in self.rollouts if rollout.failure)
