"""The wiring of safety: from its configuration to checks that look, and what guards responses.

Above it: the wiring of the server. Below it: the classifiers, the runtime's guard and metrics.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from turnwire.server.config import ConfigError, ServerConfig
from turnwire.server.policy.safety.opening import open_safety
from turnwire.server.policy.safety.rules import EXTRA
from turnwire.server.policy.safety.screening import ScreeningPolicy
from turnwire.server.runtime.guard import Guard
from turnwire.server.runtime.services import RequestPolicy
from turnwire.server.telemetry.safety_metrics import SafetyMetrics


def guarded(config: ServerConfig, checks: RequestPolicy, registry: CollectorRegistry) -> tuple[RequestPolicy, Guard]:
    """Returns checks that look at what they let pass, and what guards responses; or neither, as it is configured.

    Needs a running event loop.

    Args:
        config: Of the server.
        checks: The checks that know nothing of safety.
        registry: Where flags are counted.

    Raises:
        ConfigError: Packages are missing that the configuration needs.
    """
    if config.safety is None:
        return checks, Guard()
    incremental = "incremental-safety" not in config.disable
    try:
        opened = open_safety(config.safety, incremental=incremental)
    except ImportError as error:
        msg = f"--safety needs packages that are not installed: turnwire[{EXTRA}] ({error})"
        raise ConfigError([msg]) from error
    metrics = SafetyMetrics(registry)
    guard = Guard(opened.safety, opened.remote, fails_open=opened.fails_open, observer=metrics)
    if opened.screener is None:
        return checks, guard
    return ScreeningPolicy(checks, opened.screener, incremental=incremental, observe=metrics.screened), guard
