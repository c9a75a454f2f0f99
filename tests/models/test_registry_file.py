"""Registry files: what is read, and what is said of mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from turnwire.server.engine.profile import PLAIN, Capabilities, Price
from turnwire.server.media.rule import ImageRule
from turnwire.server.models.registry_file import RegistryError, load_registry
from turnwire.server.models.specs import EngineSpec, ModelSpec, UpstreamSpec
from turnwire.server.routing.health import RoutingPolicy

Mistakes = Callable[..., list[str]]

ENGINE = '[engines.e]\nkind = "openai"\nupstream = "http://h/v1"\n'


@pytest.fixture
def mistakes() -> Mistakes:
    def find(text: str) -> list[str]:
        with pytest.raises(RegistryError) as caught:
            load_registry(text, {"KEY": "k"}, "m.toml")
        return [str(problem) for problem in caught.value.problems]

    return find


def test_engines_and_models_are_read(tmp_path: Path) -> None:
    (tmp_path / "play.toml").write_text("x")
    (tmp_path / "models.toml").write_text(
        """
        [engines.play]
        kind = "scripted"
        scenario = "play.toml"
        ttft = "20ms"
        [engines.cloud]
        kind = "openai"
        upstream = ["http://a/v1", "https://b"]
        upstream_key_env = "KEY"
        idle_timeout = "2m"
        extra_body = { cache_prompt = true }
        [models.small]
        engine = "play"
        [models."gpt-x"]
        engine = "cloud"
        upstream_name = "vendor/gpt-x"
        aliases = ["x", "default"]
        owned_by = "vendor"
        context_length = 1000
        max_output_tokens = 100
        defaults = { temperature = 0.5, reasoning_effort = "low", verbosity = "low" }
        capabilities = { images = false }
        unsupported = ["seed"]
        on_unsupported = "ignore"
        price = { input = 2.0, output = 8 }
        """
    )

    registry = load_registry(tmp_path / "models.toml", {"KEY": "k"})

    play, cloud = registry.engines
    assert (play.kind, play.scenario, play.speed.ttft) == ("scripted", tmp_path / "play.toml", 0.02)
    assert cloud == EngineSpec(
        kind="openai",
        name="cloud",
        upstream=(UpstreamSpec("http://a/v1"), UpstreamSpec("https://b")),
        upstream_key_env="KEY",
        options={"idle_timeout": 120.0, "extra_body": {"cache_prompt": True}},
    )
    small, large = registry.models
    assert small == ModelSpec("small", "play")
    assert small.profile is PLAIN
    assert registry.of(cloud) == (large,)
    assert (large.upstream_name, large.aliases, large.owned_by) == ("vendor/gpt-x", ("x", "default"), "vendor")
    profile = large.profile
    assert (profile.context_length, profile.max_output_tokens, profile.ignores) == (1000, 100, True)
    assert profile.capabilities == Capabilities(images=False)
    assert profile.unsupported == {"seed"}
    assert profile.defaults.temperature == 0.5
    assert profile.defaults.reasoning.effort == profile.defaults.text.verbosity == "low"
    assert profile.price == Price(2.0, 2.0, 8.0, "USD")


def test_a_model_counts_images_by_numbers_of_its_own(mistakes: Mistakes) -> None:
    text = f"""{ENGINE}[models.m]
[models.big]
images = {{ base = 70, tile = 140 }}
[models.small]
images = {{ rule = "patch", budget = 2500, multiplier = 1.62 }}
"""
    rules = [model.profile.image_rule for model in load_registry(text, {}).models]
    assert rules == [ImageRule(), ImageRule("tile", 70, 140), ImageRule("patch", budget=2500, multiplier=1.62)]

    found = mistakes(f"""{ENGINE}[models.m]
images = {{ rule = "pixel", base = -1, multiplier = 2, size = 1 }}
""")
    assert [line.split("'")[1].removeprefix("models.m.images.") for line in found] == [
        "rule",
        "base",
        "multiplier",
        "size",
    ]


def test_a_model_of_the_only_engine_need_not_name_it() -> None:
    [model] = load_registry(f"{ENGINE}[models.m]\n", {}).models

    assert model == ModelSpec("m", "e")


def test_every_mistake_is_reported_with_its_line_and_key(mistakes: Mistakes) -> None:
    text = """\
[engines.a]
kind = "opena"
[engines.b]
upstream = "http://h"
[engines.c]
kind = "vllm-grpc"
upstream = "http://h"
flavour = "vllm"
rendrer = "harmony"
[models.m]
engine = "d"
context_length = 100
max_output_tokens = 200
alias = ["x"]
[models.n]
engine = "c"
file = "m.gguf"
capabilities = { images = "no", vision = true }
defaults = { temperature = 3, seed = "x", top = 1 }
unsupported = ["temprature"]
on_unsupported = "drop"
price = { output = -1, currency = "dollar" }
[model.o]
"""

    assert mistakes(text) == [
        "m.toml:2: key 'engines.a.kind': there is no engine 'opena'; did you mean \"openai\"?",
        "m.toml:3: key 'engines.b.kind': missing: expected a kind of engine, such as \"openai\"",
        "m.toml:7: key 'engines.c.upstream': the engine vllm-grpc expects an address such as 127.0.0.1:50051, found"
        " 'http://h'",
        "m.toml:8: key 'engines.c.flavour': is not for the engine vllm-grpc, but for openai",
        "m.toml:9: key 'engines.c.rendrer': unknown key; did you mean \"renderer\"?",
        "m.toml:11: key 'models.m.engine': there is no [engines.d]; known here: a, b, c",
        "m.toml:13: key 'models.m.max_output_tokens': expected at most context_length, 100, found 200",
        "m.toml:14: key 'models.m.alias': unknown key; did you mean \"aliases\"?",
        "m.toml:17: key 'models.n.file': cannot read m.gguf: No such file or directory",
        "m.toml:18: key 'models.n.capabilities.images': expected true or false, found a string",
        "m.toml:18: key 'models.n.capabilities.vision': unknown key; known here: images, json_schema, logprobs,"
        " parallel_tools, reasoning, tools",
        "m.toml:19: key 'models.n.defaults.temperature': Invalid 'temperature': decimal above maximum value. Expected a"
        " value <= 2, but got 3.0 instead.",
        "m.toml:19: key 'models.n.defaults.seed': no setting has such a value: found 'x'",
        "m.toml:19: key 'models.n.defaults.top': unknown key; did you mean \"top_p\"?",
        'm.toml:20: key \'models.n.unsupported\': unknown name "temprature"; did you mean "temperature"?',
        'm.toml:21: key \'models.n.on_unsupported\': expected one of "refuse", "ignore", found "drop"',
        "m.toml:22: key 'models.n.price.output': expected a number of at least 0, found -1",
        "m.toml:22: key 'models.n.price.currency': expected a currency of three letters, such as \"USD\", found"
        " 'dollar'",
        "m.toml:22: key 'models.n.price.input': missing: expected the price of a million tokens",
        "m.toml:23: key 'model': unknown key; did you mean \"models\"?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.toml:1: key 'engines': missing: a registry needs at least one [engines.NAME]"),
        ("engines = [", "m.toml:1: not valid TOML: Invalid value"),
        ("engines = 1", "m.toml:1: key 'engines': expected a table, found an integer"),
        ("[engines]\ne = 1", "m.toml:2: key 'engines.e': expected a table, found an integer"),
        (
            '[engines.a]\nkind = "scripted"\n[engines.b]\nkind = "scripted"\n[models.m]\n',
            "m.toml:5: key 'models.m.engine': missing: there are several engines; say which one serves this model",
        ),
        (
            f'{ENGINE}[models.m]\naliases = ["n"]\n[models.n]\n',
            "m.toml:6: key 'models.n': the name 'n' is already that of the model 'm'",
        ),
        (
            f'{ENGINE}[models.m]\naliases = ["m"]\n',
            "m.toml:5: key 'models.m.aliases': the name 'm' is already that of the model 'm'",
        ),
        (
            f'{ENGINE}[models."a b"]\n',
            "m.toml:4: key 'models.a b': expected a name of 1 to 256 characters without blanks",
        ),
        (
            f'{ENGINE}[models.m]\nunsupported = ["temperature"]\ndefaults = {{ temperature = 1 }}\n',
            "m.toml:6: key 'models.m.defaults.temperature': this model does not take it, as said here",
        ),
        (
            f"{ENGINE}[models.m]\nmax_output_tokens = 20\ndefaults = {{ max_output_tokens = 30 }}\n",
            "m.toml:6: key 'models.m.defaults.max_output_tokens': expected at most max_output_tokens, 20, found 30",
        ),
        (
            f'{ENGINE}upstream_key_env = "NONE"\n',
            "m.toml:4: key 'engines.e.upstream_key_env': the environment has no variable NONE, or an empty one",
        ),
        (
            '[engines.e]\nkind = "vllm"\nupstream = "http://h/v1"\nrenderer = "harmony"\noutput_format = "hermes"',
            "m.toml:5: key 'engines.e.output_format': models that are spoken to in harmony answer in harmony; leave"
            " this out",
        ),
        ('[engines.e]\nkind = "local"\nslots = 0', "m.toml:3: key 'engines.e.slots': expected an integer from 1 to"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(mistakes: Mistakes, text: str, message: str) -> None:
    [problem] = mistakes(text)

    assert problem.startswith(message)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"none\.toml: cannot be read: No such file"):
        load_registry(tmp_path / "none.toml", {})


def test_several_upstreams_have_weights_and_ways_of_their_own() -> None:
    [engine] = load_registry(
        """
        [engines.e]
        kind = "vllm"
        renderer = "harmony"
        upstream = [
            "http://a/v1",
            { address = "http://b/v1", weight = 2 },
            { address = "http://c/v1", weight = 0.5, routing_headers = "x-one" },
            { address = "http://d/v1", routing_headers = [] },
        ]
        routing_headers = ["x-all", "x-more"]
        max_tries = 2
        max_failures = 5
        ejection_time = "2s"
        max_ejection_time = "3m"
        check_interval = "10s"
        """,
        {},
    ).engines

    assert engine.upstream == (
        UpstreamSpec("http://a/v1", 1.0, ("x-all", "x-more")),
        UpstreamSpec("http://b/v1", 2.0, ("x-all", "x-more")),
        UpstreamSpec("http://c/v1", 0.5, ("x-one",)),
        UpstreamSpec("http://d/v1", 1.0, ()),
    )
    assert engine.routing == RoutingPolicy(2, 5, 2.0, 180.0, 10.0)


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        ("[]", "expected at least one"),
        ("[1]", "expected an address or a table with one, found 1"),
        ('["http://a", "http://a"]', "http://a is named twice"),
        ("{ weight = 1 }", "address: missing"),
        ('["http://a", { addres = "http://b" }]', "number 2: unknown key 'addres'; did you mean \"address\"?"),
        ('[{ address = "http://b", weight = -1 }]', "number 1: weight: expected a number of at least 0, found -1"),
        ('[{ address = "http://b", weight = 1e9 }]', "number 1: weight: expected at most 1e+06, found 1e+09"),
        ('[{ address = "http://b", weight = 0 }]', "expected at least one with a weight of more than 0"),
        (
            '[{ address = "http://b", routing_headers = "Authorization" }]',
            "number 1: routing_headers: expected names of headers such as x-session-id, found 'Authorization'",
        ),
        ('["x:1"]', "the engine openai expects an address such as http://127.0.0.1:8000/v1, found 'x:1'"),
    ],
)
def test_a_mistake_within_an_upstream_says_which_one(mistakes: Mistakes, upstream: str, message: str) -> None:
    text = f'[engines.e]\nkind = "openai"\nupstream = {upstream}\n'
    found = mistakes(text)
    assert f"m.toml:3: key 'engines.e.upstream': {message}" in found


def test_times_out_have_an_order_and_other_engines_none(mistakes: Mistakes) -> None:
    text = f'{ENGINE}ejection_time = "2m"\n[engines.s]\nkind = "scripted"\nmax_tries = 2\nupstream = "http://h"\n'
    assert mistakes(text) == [
        "m.toml:4: key 'engines.e.ejection_time': expected ejection_time, 120 s, to be at most max_ejection_time, 60 s",
        "m.toml:7: key 'engines.s.max_tries': is not for the engine scripted, but for openai, vllm, vllm-grpc, "
        "sglang-grpc",
        "m.toml:8: key 'engines.s.upstream': is not for the engine scripted, but for openai, vllm, vllm-grpc, "
        "sglang-grpc",
    ]
