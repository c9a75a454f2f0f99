"""Engines as they are opened: what each imports, where conversations go, what happens when one cannot be had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwire.server.engine.by_model import ByModelEngine
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.engine.leased import LeasedEngine
from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import ModelProfile
from turnwire.server.engine.profiled import ProfiledEngine
from turnwire.server.engine.scripted.scenario import ScenarioError
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.models.opening import EngineOpenError, open_all, open_engines
from turnwire.server.models.specs import EngineSpec, ModelSpec, Registry, UpstreamSpec
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import ResponseCreate

EXTRAS = ("jinja2", "mcp", "smg_grpc_proto", "tokenizers", "xllamacpp")


class Silent:
    def output(self, chunks: Sequence[Chunk]) -> None:
        raise AssertionError(chunks)

    def ended(self, outcome: Finish | EngineFailure) -> None:
        raise AssertionError(outcome)


def grown(transcript: Transcript, text: str) -> Transcript:
    item = Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=text)))
    return transcript.extend([Entry(item.SerializeToString(), Origin.INPUT, 1)], frozenset())


def prompt_of(transcript: Transcript, model: str = "m") -> Prompt:
    return Prompt(1, "resp_1", model, ResponseCreate(), NO_TOOLS, transcript, 0, 1, 0)


def test_a_server_without_extras_plays_scenarios() -> None:
    code = (
        f"import sys; sys.modules |= dict.fromkeys({EXTRAS!r})\n"
        "import asyncio, turnwire.server.app\n"
        "from turnwire.server.models.opening import open_engines\n"
        "from turnwire.server.models.specs import EngineSpec, Registry\n"
        "[engine] = asyncio.run(open_engines(Registry((EngineSpec(),))))\n"
        "print(engine.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)

    assert (done.stdout, done.stderr) == ("scripted\n", "")


async def test_models_get_their_profiles_and_engines_their_own_names() -> None:
    cloud = EngineSpec(
        kind="openai", name="cloud", upstream=(UpstreamSpec("http://127.0.0.1:9"),), upstream_key_env="KEY"
    )
    play = EngineSpec(name="play")
    profile = ModelProfile(context_length=10)
    models = (ModelSpec("a", "cloud", upstream_name="vendor/a", aliases=("x",), profile=profile),)

    chat, scripted = await open_engines(Registry((cloud, play), models), {"KEY": "secret-key"})

    assert isinstance(chat, ProfiledEngine)
    assert chat.models() == (ModelInfo("a", context_length=10, aliases=("x",), profile=profile),)
    assert [model.id for model in scripted.models()] == ["scripted"]
    for engine in (chat, scripted):
        await engine.aclose()


async def test_an_upstream_that_is_down_is_waited_for_when_it_is_asked_for_models(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [engine] = await open_engines(
        Registry((EngineSpec(kind="openai", upstream=(UpstreamSpec("http://127.0.0.1:9"),)),)), {}
    )

    assert isinstance(engine, LeasedEngine)
    assert isinstance(engine.engine, SpreadEngine)
    assert isinstance(engine.engine.pool.members[0].engine, ChatEngine)
    assert engine.models() == []
    assert "http://127.0.0.1:9 has no models yet" in caplog.text
    await engine.aclose()


async def test_engines_that_are_open_are_closed_when_another_cannot_be() -> None:
    inner = StepEngine()

    async def opens() -> StepEngine:
        return inner

    async def fails() -> StepEngine:
        raise EngineOpenError

    starting = [opens(), fails()]
    with pytest.raises(EngineOpenError):
        await open_all(starting)
    assert inner.closed


async def test_a_scenario_that_cannot_be_played_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("turns = 1")

    with pytest.raises(ScenarioError, match="unknown key"):
        await open_engines(Registry((EngineSpec(scenario=tmp_path / "bad.toml"),)), {})


async def test_models_go_to_the_engine_that_serves_them() -> None:
    engines = [StepEngine([ModelInfo("a"), ModelInfo("m")]), StepEngine([ModelInfo("b")])]
    together = ByModelEngine(engines)

    assert [model.id for model in together.models()] == ["a", "m", "b"]
    for number in range(10):
        for model in ("a", "b"):
            together.start(prompt_of(grown(EMPTY, f"task {number}"), model), Silent())
    assert {each.prompt.model for each in engines[0].passes} == {"a"}
    assert {each.prompt.model for each in engines[1].passes} == {"b"}
    await together.aclose()
    assert all(engine.closed for engine in engines)
