"""The wiring of safety: from its configuration to checks that look, what guards responses, and what reads rules again.

Above it: the wiring of the server. Below it: the classifiers, the runtime's guard and metrics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from turnwire.server.config import ConfigError, ServerConfig
from turnwire.server.policy.port import RequestPolicy
from turnwire.server.policy.safety.current import CurrentRules
from turnwire.server.policy.safety.opening import open_safety
from turnwire.server.policy.safety.rules import EXTRA, SafetyConfig
from turnwire.server.policy.safety.rules_file import SafetyFileError, load_safety_file
from turnwire.server.policy.safety.screener import RuleScreener
from turnwire.server.policy.safety.screening import ScreeningPolicy
from turnwire.server.runtime.guard import Guard
from turnwire.server.telemetry.safety_metrics import SafetyMetrics

_log: Final = logging.getLogger(__name__)


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


def rules_reload(config: ServerConfig, guard: Guard, environ: Mapping[str, str]) -> RulesReload | None:
    """Returns what reads a server's safety file again; None where there is no such file."""
    if config.safety is None or config.safety_file is None:
        return None
    screener = None if guard.safety is None else guard.safety.screener
    rules = screener if isinstance(screener, CurrentRules) else None
    return RulesReload(config.safety_file, environ, config.safety, rules)


class RulesReload:
    """Reads a safety file again: its categories are put in force; all else of it needs a new start."""

    def __init__(
        self, path: Path, environ: Mapping[str, str], config: SafetyConfig, rules: CurrentRules | None
    ) -> None:
        """Takes the file, the variables it may name, what it said at the start, and the rules in force."""
        self._path = path
        self._environ = environ
        self._config = config
        self._rules = rules
        self._asked = False
        self._task: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Reads the file again soon; asked again meanwhile, once more after that. For handlers of signals."""
        self._asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        while self._asked:
            self._asked = False
            await self.reload()

    async def reload(self) -> bool:
        """Reads the file and puts its categories in force; returns whether it could, which the log explains.

        A file with mistakes changes nothing. Safe to cancel.
        """
        try:
            config = await asyncio.to_thread(load_safety_file, self._path, self._environ)
            if (self._rules is None) != (not config.categories):
                _log.error("safety is as before: rules that appear or are gone altogether need a new start")
                return False
            if self._rules is not None:
                self._rules.replace(await asyncio.to_thread(RuleScreener, config.categories))
        except SafetyFileError as error:
            for problem in error.problems:
                _log.error("safety is as before: %s", problem)
            return False
        except Exception:
            _log.exception("safety is as before: %s cannot be used", self._path)
            return False
        if replace(config, categories=()) != replace(self._config, categories=()):
            _log.warning("the mode and the remote classifier of %s are as before: they need a new start", self._path)
        _log.info("safety rules of %s are in force", self._path)
        return True

    async def aclose(self) -> None:
        """Stops reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
