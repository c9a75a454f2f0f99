from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from turnwire.server.address import Address
from turnwire.server.cli import serve
from turnwire.server.config import ConfigError, ServerConfig, StartError
from turnwire.server.engine.scripted.scenario import Problem, ScenarioError
from turnwire.server.keys import KeyFileError
from turnwire.server.settings import SETTINGS


class StandIn:
    """Stands in for the server: keeps its configuration, says it is ready, and ends as it is told."""

    def __init__(self) -> None:
        self.config: ServerConfig | None = None
        self.error: BaseException | None = None
        self.code = 0
        self.loop = ""

    async def run_server(self, config: ServerConfig, ready: Callable[[str], None]) -> int:
        self.config = config
        self.loop = type(asyncio.get_running_loop()).__module__
        if self.error is not None:
            raise self.error
        ready("grpc listening on 127.0.0.1:50051")
        return self.code


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    module = ModuleType("turnwire.server.app")
    vars(module)["run_server"] = stand_in.run_server
    monkeypatch.setitem(sys.modules, "turnwire.server.app", module)
    return stand_in


@pytest.fixture
def run(cli: CliRunner, server: StandIn) -> Callable[..., Result]:
    return lambda *arguments: cli.invoke(serve, arguments)


def test_serve_starts_with_the_defaults_and_says_where_it_listens(run: Callable[..., Result], server: StandIn) -> None:
    result = run()

    assert (result.exit_code, result.stdout, result.stderr) == (0, "grpc listening on 127.0.0.1:50051\n", "")
    assert server.config == ServerConfig()
    assert server.loop == "uvloop"


def test_flags_reach_the_server(run: Callable[..., Result], server: StandIn, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("alice:0123456789abcdef0123")

    result = run(
        "--grpc", "0.0.0.0:1", "--grpc", "unix:x.sock", "--metrics", "off", "--http", "off", "--engine", "scripted",
        "--api-key-file", str(tmp_path / "keys"), "--ttft", "5ms", "--drain-grace", "1s", "--log-level", "error",
    )  # fmt: skip

    assert result.exit_code == 0
    config = server.config
    assert config is not None
    assert config.grpc == (Address("0.0.0.0", 1), Address(path="x.sock"))
    assert config.metrics is None
    assert config.api_key_file == tmp_path / "keys"
    assert (config.engine.speed.ttft, config.drain_grace, config.log.level) == (0.005, 1.0, "error")


def test_a_switch_reaches_the_server(run: Callable[..., Result], server: StandIn) -> None:
    assert run("--grpc", "0.0.0.0:1", "--allow-public").exit_code == 0
    assert server.config is not None
    assert server.config.allow_public


def test_the_environment_and_the_file_are_read(
    run: Callable[..., Result], server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.toml").write_text("max_sessions = 7\n[limits]\nmax_lanes = 8")
    monkeypatch.setenv("TURNWIRE_CONFIG", str(tmp_path / "t.toml"))
    monkeypatch.setenv("TURNWIRE_MAX_SESSIONS", "9")

    assert run().exit_code == 0
    assert server.config is not None
    assert (server.config.max_sessions, server.config.limits.max_lanes) == (9, 8)


def test_a_wrong_configuration_exits_with_2_before_anything_starts(run: Callable[..., Result], server: StandIn) -> None:
    result = run("--http", "http://x", "--grpc", "0.0.0.0:1")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Error: --http: expected HOST:PORT, unix:PATH or off, found the URL 'http://x'",
        "Error: --grpc: 0.0.0.0:1 can be reached by others: give --api-key-file, or --allow-public to let anybody in",
    ]
    assert server.config is None


def test_an_unknown_flag_exits_with_2(run: Callable[..., Result]) -> None:
    result = run("--grcp", "x")

    assert result.exit_code == 2
    assert "--grpc" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ScenarioError([Problem("a.toml", 3, "turn", "wrong")]), 2, "Error: a.toml:3: key 'turn': wrong\n"),
        (KeyFileError("keys:1: a key is"), 2, "Error: keys:1: a key is\n"),
        (ConfigError(["one", "two"]), 2, "Error: one\nError: two\n"),
        (StartError("cannot listen on 127.0.0.1:1"), 1, "Error: cannot listen on 127.0.0.1:1\n"),
        (OSError(98, "Address already in use"), 1, "Error: [Errno 98] Address already in use\n"),
        (KeyboardInterrupt(), 1, ""),
    ],
)
def test_what_stops_a_server_decides_the_exit_code(
    run: Callable[..., Result], server: StandIn, error: BaseException, code: int, message: str
) -> None:
    server.error = error

    result = run()

    assert (result.exit_code, result.stdout, result.stderr) == (code, "", message)


def test_a_bug_exits_with_1_and_leaves_its_traceback_in_the_log(run: Callable[..., Result], server: StandIn) -> None:
    server.error = ZeroDivisionError("with Bearer k3y-of-alice")

    result = run()

    assert result.exit_code == 1
    assert "error   turnwire.server.cli: the server failed" in result.stderr
    assert "ZeroDivisionError: with Bearer [redacted]" in result.stderr


def test_the_code_of_the_server_is_the_exit_code(run: Callable[..., Result], server: StandIn) -> None:
    server.code = 1

    assert run().exit_code == 1


def test_help_names_every_flag_with_its_default_and_examples(run: Callable[..., Result]) -> None:
    result = run("--help")

    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for setting in SETTINGS:
        if setting.flag:
            assert f"{setting.flag} {setting.metavar}".rstrip() in text
            assert not setting.default or not setting.metavar or f"[{setting.default}]" in text
    assert "Examples: turnwire serve turnwire serve --scenario my.toml" in text
