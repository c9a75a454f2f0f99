"""Opens what a safety configuration describes.

Above it: the wiring. Below it: the classifiers.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.server.policy.safety.current import CurrentRules
from turnwire.server.policy.safety.remote import Moderations, RemoteClassifier
from turnwire.server.policy.safety.rules import SafetyConfig
from turnwire.server.policy.safety.screener import RuleScreener
from turnwire.server.session.screens import Safety


@dataclass(frozen=True, slots=True)
class OpenSafety:
    """Classifiers at work."""

    safety: Safety
    """What the core is told."""
    screener: CurrentRules | None = None
    remote: RemoteClassifier | None = None
    fails_open: bool = False


def open_safety(config: SafetyConfig, *, incremental: bool = True) -> OpenSafety:
    """Compiles the rules and makes the remote classifier's adapter; within a running event loop.

    Args:
        config: What to open.
        incremental: Whether turns look at what is new only.

    Raises:
        ImportError: The packages of the extra are missing.
    """
    screener = CurrentRules(RuleScreener(config.categories)) if config.categories else None
    remote = config.remote
    base = Safety()
    safety = Safety(
        gate=config.gate,
        screener=screener,
        remote=frozenset() if remote is None else remote.directions,
        piece=base.piece if remote is None else remote.piece,
        overlap=base.overlap if remote is None else remote.overlap,
        whole=not incremental,
    )
    adapter = None if remote is None else Moderations(remote)
    return OpenSafety(safety, screener, adapter, fails_open=remote is not None and remote.fails_open)
