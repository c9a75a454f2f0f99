"""The Codex CLI: its configuration, and runs of `codex exec`.

Above it: the tests of Codex and the measurement. Below it: the published package, as `node` installs it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .node import installed

MODEL: Final = "gpt-5.5"
"""A model that Codex knows, because it hands its patch tool to known models only."""
TASK: Final = "The tests of this project fail. Find out why, repair the code, and leave the tests as they are."
KEY: Final = "a-key-for-tests"
_NOWHERE: Final = "http://127.0.0.1:9"
"""The discard port: a proxy that is not there, for whatever would leave this machine."""

_CONFIG: Final = """
model = "{model}"
model_provider = "turnwire"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
apps = false
shell_snapshot = false

[model_providers.turnwire]
name = "turnwire"
base_url = "{base_url}"
env_key = "TURNWIRE_API_KEY"
wire_api = "responses"
supports_websockets = {websockets}
request_max_retries = {request_retries}
stream_max_retries = {stream_retries}
stream_idle_timeout_ms = {idle_timeout_ms}
"""


@dataclass(frozen=True, slots=True)
class CodexRun:
    """What a run of `codex exec` said."""

    exit_code: int
    events: list[dict[str, Any]]
    """Of `--json`, one for each line."""
    stderr: str
    seconds: float

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Lists its finished items of a type, such as `command_execution`."""
        done = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]

    @property
    def answer(self) -> str:
        """The last message of the agent; empty if there is none."""
        said = self.items("agent_message")
        return str(said[-1]["text"]) if said else ""

    @property
    def failure(self) -> str:
        """What the turn failed with; empty if it did not."""
        return next((event["error"]["message"] for event in self.events if event["type"] == "turn.failed"), "")


@dataclass(frozen=True, slots=True)
class Codex:
    """How Codex is to run."""

    home: Path
    """A folder for its configuration and state; made if missing."""
    websockets: bool = True
    model: str = MODEL
    request_retries: int = 1
    stream_retries: int = 2
    idle_timeout_ms: int = 5_000
    bound: float = 50.0
    """Seconds after which a run is ended."""
    proxy: str = _NOWHERE
    """HTTP proxy for everything but the loopback address."""

    def config(self, base_url: str) -> str:
        """Returns its config.toml for a server."""
        return _CONFIG.format(
            model=self.model,
            base_url=base_url,
            websockets="true" if self.websockets else "false",
            request_retries=self.request_retries,
            stream_retries=self.stream_retries,
            idle_timeout_ms=self.idle_timeout_ms,
        )

    async def exec(
        self, base_url: str, project: Path, task: str = TASK, *, config: str = "", resume: bool = False
    ) -> CodexRun:
        """Lets Codex work in a folder, without a sandbox of its own. Cancelling it is safe: it is ended.

        Args:
            base_url: Of the server, with `/v1`.
            project: The folder.
            task: What it is told.
            config: Its config.toml; empty for the one of these settings.
            resume: Whether the last session of this folder goes on.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "config.toml").write_text(config or self.config(base_url), encoding="utf-8")
        flags = ["--json", "--strict-config", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            str(installed() / "node_modules" / ".bin" / "codex"),
            "exec",
            *(("resume", "--last") if resume else ()),
            *flags,
            task,
            cwd=project,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(self.bound):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        events = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
        return CodexRun(process.returncode, events, err.decode(errors="replace"), time.monotonic() - started)

    def _environment(self) -> Mapping[str, str]:
        # The commands that Codex runs are to find this Python, and pytest no plugins that the project has not.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        through = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), self.proxy)
        return {
            "PATH": path,
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home),
            "TURNWIRE_API_KEY": KEY,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_PROXY": "127.0.0.1",
            **through,
        }
