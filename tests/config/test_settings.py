from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwire.server.address import Address
from turnwire.server.config import ServerConfig
from turnwire.server.models.specs import EngineSpec, UpstreamSpec
from turnwire.server.session.limits import SessionLimits
from turnwire.server.settings import SETTINGS, load_config
from turnwire.server.sources import Setting

LoadToml = Callable[..., ServerConfig]
Mistakes = Callable[..., list[str]]


def test_nothing_given_is_the_default() -> None:
    assert load_config({}, {}) == ServerConfig()


def test_the_written_defaults_are_the_real_ones() -> None:
    environ = {setting.variable: setting.default for setting in SETTINGS if setting.default}

    assert load_config({}, environ) == ServerConfig()


def test_a_flag_wins_over_a_variable_over_the_file(load_toml: LoadToml) -> None:
    text = 'grpc = "127.0.0.1:1"\nmetrics = "127.0.0.1:1"\nmax_sessions = 1'
    environ = {"TURNWIRE_GRPC": "127.0.0.1:2", "TURNWIRE_METRICS": "127.0.0.1:2"}

    config = load_toml(text, environ, grpc=("127.0.0.1:3",))

    assert config.grpc == (Address("127.0.0.1", 3),)
    assert config.metrics == Address("127.0.0.1", 2)
    assert config.max_sessions == 1


def test_an_empty_variable_counts_as_unset() -> None:
    assert load_config({}, {"TURNWIRE_GRPC": "", "TURNWIRE_API_KEY_FILE": " "}) == ServerConfig()


def test_several_addresses_come_from_every_source(load_toml: LoadToml) -> None:
    both = (Address("127.0.0.1", 1), Address("localhost", 0))

    assert load_config({"grpc": ("127.0.0.1:1", "localhost:0")}, {}).grpc == both
    assert load_config({}, {"TURNWIRE_GRPC": "127.0.0.1:1, localhost:0"}).grpc == both
    assert load_toml('grpc = ["127.0.0.1:1", "localhost:0"]').grpc == both


def test_paths_in_the_file_are_relative_to_it(load_toml: LoadToml, tmp_path: Path, certificates: Path) -> None:
    for name in ("keys.txt", "my.toml"):
        (tmp_path / name).write_text("x")

    config = load_toml(
        'grpc = "unix:x.sock"\napi_key_file = "keys.txt"\n[engine]\nscenario = "my.toml"\n'
        '[tls]\ncert = "server.pem"\nkey = "server.key"'
    )

    assert config.api_key_file == tmp_path / "keys.txt"
    assert config.engine.scenario == tmp_path / "my.toml"
    assert config.tls is not None
    assert (config.tls.cert, config.tls.key) == (certificates / "server.pem", certificates / "server.key")
    assert config.tls.client_ca is None
    assert config.grpc == (Address(path=f"{tmp_path}/x.sock"),)


def test_every_limit_can_be_set_in_the_file(load_toml: LoadToml) -> None:
    halves: dict[str, Any] = {
        name: type(value)(value / 2) for name, value in dataclasses.asdict(SessionLimits()).items()
    }
    text = "[limits]\n" + "\n".join(f"{name} = {value}" for name, value in halves.items())

    assert load_toml(text).limits == SessionLimits(**halves)


def test_the_drain_grace_is_the_limit_that_clients_are_told() -> None:
    config = load_config({"limits.grace": "5s"}, {})

    assert config.drain_grace == config.limits.grace == 5.0


@pytest.mark.parametrize(("text", "seconds"), [("250ms", 0.25), ("30", 30), ("1.5s", 1.5), ("5m", 300), ("1d", 86400)])
def test_durations_are_read_with_their_units(text: str, seconds: float) -> None:
    assert load_config({"limits.grace": text}, {}).limits.grace == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("2097152", 2**21), ("2MiB", 2**21), ("1.5 MiB", 3 * 2**19), ("1GiB", 2**30)]
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    environ = {"TURNWIRE_MAX_MESSAGE_BYTES": text, "TURNWIRE_LIMITS_MAX_REQUEST_BYTES": "1KiB"}

    assert load_config({}, environ).max_message_bytes == size


@pytest.mark.parametrize(("text", "rate"), [("65", 65), ("0.5", 0.5), ("unlimited", math.inf), ("0", math.inf)])
def test_the_speed_of_the_engine_is_read(text: str, rate: float) -> None:
    flags = {"engine.tokens_per_second": text, "engine.ttft": "200ms", "engine.burst": "4"}

    speed = load_config(flags, {}).engine.speed

    assert (speed.tokens_per_second, speed.ttft, speed.burst) == (rate, 0.2, 4)


def test_an_engine_is_read_from_every_source(load_toml: LoadToml, tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    text = '[engine]\nkind = "vllm-grpc"\nupstream = ["a:1", "b:1"]\ntokenizer = "tokenizer"\nmodel = "m"'

    config = load_toml(text, {"TURNWIRE_OUTPUT_FORMAT": "hermes", "TURNWIRE_MODEL": "is a client's"})

    assert config.engine == EngineSpec(
        kind="vllm-grpc",
        models=("m",),
        upstream=(UpstreamSpec("a:1"), UpstreamSpec("b:1")),
        tokenizer=tmp_path / "tokenizer",
        output_format="hermes",
    )
    flags = {"engine.kind": "openai", "engine.upstream": ("http://x",), "engine.model": ("m", "n")}
    assert load_config(flags, {}).engine == EngineSpec(
        kind="openai", models=("m", "n"), upstream=(UpstreamSpec("http://x"),)
    )


def test_a_registry_file_cannot_stand_beside_an_engine(tmp_path: Path, mistakes: Mistakes) -> None:
    (tmp_path / "models.toml").write_text('[engines.a]\nkind = "scripted"\nslot = 1\n')

    assert mistakes('[engine]\nkind = "scripted"', models=str(tmp_path / "models.toml")) == [
        "turnwire.toml:2: key 'engine.kind': cannot stand beside --models, which names engines",
        "models.toml:3: key 'engines.a.slot': unknown key; did you mean \"slots\"?",
    ]


def test_a_tools_file_is_read_and_its_mistakes_are_reported(tmp_path: Path, mistakes: Mistakes) -> None:
    (tmp_path / "tools.toml").write_text('[mcp.servers.files]\ncommand = ["files"]')
    config = load_config({"tools_file": str(tmp_path / "tools.toml")}, {})
    assert config.tools is not None
    assert config.tools.mcp.servers["files"].command == ("files",)

    (tmp_path / "tools.toml").write_text("mcq = 1")
    [problem] = mistakes(tools_file=str(tmp_path / "tools.toml"))
    assert problem.startswith("tools.toml: mcq: is not known")


def test_every_mistake_is_reported_with_its_place(mistakes: Mistakes) -> None:
    text = 'engin = 1\nkeepalive = 2\n[limits]\nmax_lane = 3\nmax_age = "2y"\nmax_items = true\n[log]\nlevel = "loud"\n'
    environ = {"TURNWIRE_BURST": "0", "TURNWIRE_LIMITS_MAX_ITEM": "1", "TURNWIRE_API_KEY": "is a client's"}

    assert mistakes(text, environ, metrics="9464") == [
        'TURNWIRE_LIMITS_MAX_ITEM: unknown variable; did you mean "TURNWIRE_LIMITS_MAX_ITEMS"?',
        "turnwire.toml:1: key 'engin': unknown key; did you mean \"engine\"?",
        "turnwire.toml:2: key 'keepalive': expected a table, found 2",
        "turnwire.toml:4: key 'limits.max_lane': unknown key; did you mean \"max_lanes\"?",
        "--metrics: expected HOST:PORT, unix:PATH or off, found '9464'; the host is missing",
        "TURNWIRE_BURST: expected an integer from 1 to 2000000, found '0'",
        "turnwire.toml:6: key 'limits.max_items': expected an integer from 1 to 2147483647, found true",
        "turnwire.toml:5: key 'limits.max_age': expected a duration from 1ms to 3650d, such as \"30s\", found '2y'",
        'turnwire.toml:8: key \'log.level\': expected one of "debug", "info", "warning", "error", found \'loud\'',
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"http": ("8080",)}, "--http: expected HOST:PORT, unix:PATH or off, found '8080'; the host is missing"),
        ({"websocket": "maybe"}, "--websocket: expected true or false, found 'maybe'"),
        ({"engine.kind": "opena"}, "--engine: there is no engine 'opena'; did you mean \"openai\"?"),
        (
            {"engine.kind": "openai"},
            "--engine: the engine openai needs an upstream, such as http://127.0.0.1:8000/v1",
        ),
        (
            {"engine.upstream": ("http://x",)},
            "--upstream: is not for the engine scripted, but for openai, vllm, vllm-grpc, sglang-grpc",
        ),
        (
            {"engine.kind": "vllm-grpc", "engine.upstream": ("http://x",)},
            "--upstream: the engine vllm-grpc expects an address such as 127.0.0.1:50051, found 'http://x'",
        ),
        (
            {"engine.kind": "openai", "engine.upstream": ("x:1",)},
            "--upstream: the engine openai expects an address such as http://127.0.0.1:8000/v1, found 'x:1'",
        ),
        (
            {"engine.kind": "openai", "engine.upstream": ("http://x",), "engine.upstream_key_env": "MY_KEY"},
            "--upstream-key-env: the environment has no variable MY_KEY, or an empty one",
        ),
        (
            {"engine.kind": "openai", "engine.upstream": ("http://x",), "engine.upstream_key_env": "sk-123"},
            "--upstream-key-env: expected the name of an environment variable, not the key itself",
        ),
        (
            {"engine.kind": "vllm", "engine.upstream": ("http://x",)},
            '--engine: the engine vllm needs renderer "harmony" for a gpt-oss model, or else a tokenizer: a folder with'
            " the model's tokenizer.json and chat template",
        ),
        (
            {"engine.kind": "vllm-grpc", "engine.upstream": ("x:1",), "engine.tokenizer": "/nowhere"},
            "--tokenizer: expected a folder with a tokenizer.json, found /nowhere",
        ),
        ({"engine.model": ("m",)}, "--model: is not for the engine scripted, whose scenario names its models"),
        (
            {"engine.kind": "local", "engine.model": ("/nowhere/m.gguf",)},
            "--model: the engine local expects a model's GGUF file: cannot read /nowhere/m.gguf: No such file or"
            " directory",
        ),
        ({"engine.slots": "2"}, "--slots: is not for the engine scripted, but for local"),
        ({"models": "/nowhere/m"}, "--models: cannot read /nowhere/m: No such file or directory"),
        ({"tools_file": "/nowhere/t"}, "--tools-file: cannot read /nowhere/t: No such file or directory"),
        ({"disable": ("route_cache",)}, '--disable: unknown name "route_cache"; did you mean "route-cache"?'),
        ({"grpc": ("off",), "http": ("off",)}, "--grpc: nothing to listen on: --http is off too"),
        ({"http_origins": ("*",)}, "--http-origins: * would let in any page: give --api-key-file too"),
        (
            {"http_origins": ("app.example",)},
            "--http-origins: expected an origin such as https://app.example or http://localhost:3000, found"
            " 'app.example'",
        ),
        ({"grpc": ("off", "localhost:1")}, "--grpc: off cannot stand beside addresses"),
        ({"grpc": ("localhost:1", "localhost:1")}, "--grpc: localhost:1 is named twice"),
        ({"api_key_file": "/nowhere/k"}, "--api-key-file: cannot read /nowhere/k: No such file or directory"),
        ({"config": "/nowhere/c"}, "--config: cannot read /nowhere/c: No such file or directory"),
        ({"batch_window": "1s"}, "--batch-window: expected a duration from 0s to 100ms, such as \"30s\", found '1s'"),
        ({"batch_window": "nan"}, "--batch-window: expected a duration from 0s to 100ms, such as \"30s\", found 'nan'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(mistakes: Mistakes, flags: dict[str, object], message: str) -> None:
    assert mistakes(**flags) == [message]


@pytest.mark.parametrize("setting", [each for each in SETTINGS if each.metavar == "FILE"], ids=lambda each: each.key)
def test_a_file_that_is_not_there_is_told_once(mistakes: Mistakes, setting: Setting) -> None:
    # However often a setting is read on the way.
    told = [each for each in mistakes(**{setting.key: "/nowhere/file"}) if "/nowhere/file" in each]
    assert told == [f"{setting.flag}: cannot read /nowhere/file: No such file or directory"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grpc = [", "turnwire.toml: not valid TOML: "),
        ("grpc = 5", "turnwire.toml:1: key 'grpc': expected a string or an array of strings, found 5"),
        ("config = 'x'", "turnwire.toml:1: key 'config': unknown key"),
        ("max_message_bytes = '2MiB'", "turnwire.toml:1: key 'max_message_bytes': 2097152 is less than limits"),
        (
            "[limits]\nqueue_low_water = '1MiB'",
            "turnwire.toml:2: key 'limits.queue_low_water': queue_low_water must be",
        ),
        ("[limits]\nqueue_high_water = '1KiB'", "turnwire.toml:2: key 'limits.queue_high_water': queue_low_water must"),
        ("[limits]\nmax_age = inf", "turnwire.toml:2: key 'limits.max_age': expected a duration"),
        ("[limits]\nmax_age = 2020-01-01", "turnwire.toml:2: key 'limits.max_age': expected a duration"),
        ("[tls]\nkey = 'turnwire.toml'", "turnwire.toml:2: key 'tls.key': TLS needs tls.cert too"),
        (
            "[engine]\nburst = [1]",
            "turnwire.toml:2: key 'engine.burst': expected an integer from 1 to 2000000, found an",
        ),
    ],
)
def test_mistakes_in_the_file_name_line_and_key(mistakes: Mistakes, text: str, message: str) -> None:
    [problem] = mistakes(text)

    assert problem.startswith(message)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path, mistakes: Mistakes) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

    assert mistakes(config=str(tmp_path / "binary")) == ["--config: cannot read binary: not UTF-8 text"]


def test_the_file_can_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "turnwire.toml").write_text("max_sessions = 7")

    assert load_config({}, {"TURNWIRE_CONFIG": str(tmp_path / "turnwire.toml")}).max_sessions == 7


@pytest.mark.parametrize("flags", [{"grpc": ("0.0.0.0:1",)}, {"http": ("0.0.0.0:1",)}, {"metrics": "[::]:1"}])
def test_a_public_address_needs_keys_or_a_word(tmp_path: Path, mistakes: Mistakes, flags: dict[str, object]) -> None:
    [problem] = mistakes(**flags)

    assert "can be reached by others: give --api-key-file, or --allow-public" in problem
    (tmp_path / "keys").write_text("alice:0123456789abcdef0123")
    assert load_config({**flags, "api_key_file": str(tmp_path / "keys")}, {}).api_key_file is not None
    assert load_config({**flags, "allow_public": True}, {}).allow_public
    assert load_config(flags, {"TURNWIRE_ALLOW_PUBLIC": "yes"}).allow_public


def test_files_that_are_no_certificates_are_refused(tmp_path: Path, mistakes: Mistakes) -> None:
    (tmp_path / "x.pem").write_text("x")

    [problem] = mistakes('[tls]\ncert = "x.pem"\nkey = "x.pem"')

    assert problem.startswith("turnwire.toml:2: key 'tls.cert': x.pem and x.pem are no certificate with its")


def test_no_two_settings_share_a_name() -> None:
    for name in ("key", "variable"):
        names = [getattr(setting, name) for setting in SETTINGS]
        assert len(set(names)) == len(names)
