"""The local engine with prompts of ids: what it asks of llama.cpp, and what it makes of the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.engine import LocalEngine, find_speech
from turnwire.server.engine.local.vocabulary import LlamaTokenizer
from turnwire.server.engine.port import CountingEngine
from turnwire.server.engine.tokens.passes import CacheReport
from turnwire.server.engine.tokens.rendering import RenderStats
from turnwire.server.session.chunks import CallEnd, Finish, FinishReason, PassUsage, TextChunk, TokenRecord
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json

from .scene import FakeLlama, Gate, OnEvent, RecordingSink, grown, prompt, text_event, tool_set, usage_event
from .toy import (
    END_MARK,
    EOS,
    FIRST_BYTE,
    FIRST_CHAR,
    MARKED,
    PACKAGED,
    ToyLlama,
    encode,
    end_event,
    progress_event,
    say,
    spelled,
    token_event,
    toy_file,
    toy_speech,
)

HI = grown(EMPTY, "Hi")
ADD = tool_set({"type": "function", "name": "add", "parameters": {"type": "object"}}, {"type": "custom", "name": "sh"})
STOP = ("\n\nQuestion:",)

Open = Callable[..., LocalEngine]


@pytest.fixture
def llama() -> ToyLlama:
    return ToyLlama()


@pytest.fixture
async def open_engine(llama: ToyLlama, tmp_path: Path) -> AsyncIterator[Open]:
    made: list[LocalEngine] = []

    def make(*, stop: tuple[str, ...] = (), max_output: int = 0, **config: Any) -> LocalEngine:
        file = toy_file(tmp_path, stop=stop, max_output=max_output)
        engine = LocalEngine(LocalConfig(**config), file, llama, toy_speech(tmp_path, llama))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        await engine.aclose()


async def ran(engine: LocalEngine, asked: Any) -> tuple[RecordingSink, Finish]:
    sink = RecordingSink()
    engine.start(asked, sink)
    return sink, await sink.finish()


def answered(transcript: Transcript, sink: RecordingSink, finish: Finish) -> Transcript:
    """The transcript with what was said, as the session makes it."""
    item = from_json(Item, json.dumps({"type": "message", "role": "assistant", "content": sink.text}))
    entry = Entry(item.SerializeToString(), Origin.MODEL, 1)
    return transcript.extend([entry], frozenset(), turns=1, record=finish.record)


def asked_text(llama: ToyLlama) -> str:
    return spelled(llama.bodies[-1]["prompt"])


async def test_a_prompt_is_ids_and_the_answer_is_read_from_ids(open_engine: Open, llama: ToyLlama) -> None:
    sink, finish = await ran(open_engine(), prompt(HI, instructions="Be kind.", temperature=0.5, seed=3))
    assert sink.text == "Yes."
    assert (finish.reason, finish.usage) == (FinishReason.STOP, PassUsage(len(llama.bodies[0]["prompt"]), 3, 5, 0))
    assert asked_text(llama) == "<bos>Be kind.\n\nQuestion:\nHi\n\nAnswer:\n"
    [body] = llama.bodies
    assert (body["temperature"], body["seed"], body["stream"], body["return_progress"]) == (0.5, 3, True, True)
    assert (body["id_slot"], body["cache_prompt"], body["n_probs"], body["post_sampling_probs"]) == (0, True, 1, True)
    assert body["n_predict"] == llama.loaded.context - len(body["prompt"])
    assert not {"messages", "top_k", "stop", "json_schema"} & body.keys()
    record = finish.record
    assert record is not None
    assert record.sampled.tolist() == [*encode("Yes."), EOS]
    assert record.rendered.tolist() == body["prompt"]


async def test_what_rendering_cost_and_the_slot_kept_is_told(llama: ToyLlama, tmp_path: Path) -> None:
    costs: list[RenderStats] = []
    kept: list[CacheReport] = []
    file, speech = toy_file(tmp_path), toy_speech(tmp_path, llama)
    engine = LocalEngine(LocalConfig(), file, llama, speech, on_rendered=costs.append, on_cached=kept.append)
    sink, finish = await ran(engine, prompt(HI))
    await ran(engine, prompt(grown(answered(HI, sink, finish), "And?")))
    assert [(cost.first, cost.whole, cost.items_rendered) for cost in costs] == [(True, False, 1), (False, False, 1)]
    assert [(report.expected > 0, report.reported) for report in kept] == [(False, 3), (True, 3)]
    await engine.aclose()


@pytest.mark.parametrize("template", [PACKAGED, MARKED])
@pytest.mark.parametrize("ending", ["stop string", "stop token", "limit"])
async def test_over_fifty_turns_only_what_is_new_is_tokenized_and_written(
    open_engine: Open, llama: ToyLlama, template: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama.loaded = ToyLlama(template).loaded
    llama.script = {
        "stop string": say("A fine answer.\n\nQuestion:\nand", end=None),
        "stop token": say("A fine answer.", end=END_MARK if template == MARKED else EOS),
        "limit": say("A fine answer.", end=None, reason="length"),
    }[ending]
    engine = open_engine(stop=STOP)
    encoded: list[str] = []
    encode_marked = LlamaTokenizer.encode

    def counted(self: LlamaTokenizer, text: str, *, begins: bool) -> Any:
        encoded.append(text)
        return encode_marked(self, text, begins=begins)

    monkeypatch.setattr(LlamaTokenizer, "encode", counted)
    chain, before = EMPTY, ""
    for turn in range(50):
        encoded.clear()
        llama.asked.clear()
        chain = grown(chain, f"What of number {turn}?")
        sink, finish = await ran(engine, prompt(chain, instructions="Be kind. " * 40))
        assert sink.text == "A fine answer."
        if turn:
            # The answer before, where it is said anew, the question, and what stands around them.
            assert sum(map(len, encoded)) <= 120
            assert sum(map(len, llama.asked)) <= 120
        text = asked_text(llama)
        assert text.startswith(before)
        if turn:
            between = "\n\n" if template == PACKAGED else "<|end|>"
            assert text.removeprefix(before).startswith("A fine answer." + between)
        before = text
        chain = answered(chain, sink, finish)


async def test_a_stop_string_ends_the_answer_before_llama_has_stopped(open_engine: Open, llama: ToyLlama) -> None:
    gate = Gate()

    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(progress_event(7))
        for token in encode("Yes.\n\nQuestion:"):
            on_event(token_event(token))
        gate.wait()
        assert on_event(token_event(FIRST_CHAR))

    llama.script = script
    engine = open_engine(stop=STOP, slots=1)
    sink, finish = await ran(engine, prompt(HI))
    assert (sink.text, finish.reason) == ("Yes.", FinishReason.STOP)
    assert finish.usage == PassUsage(len(llama.bodies[0]["prompt"]), 7, len(encode("Yes.\n\nQuestion:")), 0)
    assert isinstance(finish.record, TokenRecord)
    assert not finish.record.verbatim
    # The slot is not free before llama.cpp has stopped.
    llama.script = say("More.")
    after = RecordingSink()
    engine.start(prompt(grown(answered(HI, sink, finish), "And?")), after)
    gate.open()
    await after.finish()
    assert not llama.same_slot


async def test_a_stop_token_ends_the_answer_though_llama_goes_on(open_engine: Open, llama: ToyLlama) -> None:
    llama.loaded = ToyLlama(MARKED).loaded

    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        for token in (*encode("Yes."), END_MARK, *encode("And on and on")):
            if on_event(token_event(token, "" if token == END_MARK else None)):
                return

    llama.script = script
    sink, finish = await ran(open_engine(), prompt(HI))
    assert (sink.text, finish.reason) == ("Yes.", FinishReason.STOP)
    assert finish.usage.output_tokens == 5
    assert finish.record is not None
    assert finish.record.sampled.tolist() == [*encode("Yes."), END_MARK]


async def test_what_cannot_be_read_ends_the_pass(open_engine: Open, llama: ToyLlama, sink: RecordingSink) -> None:
    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(b"no JSON")
        on_event(b"at all")

    llama.script = script
    open_engine(slots=1).start(prompt(HI), sink)
    assert (await sink.failure()).code == "server_error"


@pytest.mark.parametrize("place", ["message", "output"])
async def test_an_image_is_refused(open_engine: Open, llama: ToyLlama, sink: RecordingSink, place: str) -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    shown: dict[str, object] = {"type": "message", "role": "user", "content": [part]}
    if place == "output":
        shown = {"type": "function_call_output", "call_id": "c", "output": [part]}
    item = from_json(Item, json.dumps(shown)).SerializeToString()
    open_engine().start(prompt(HI.extend([Entry(item, Origin.INPUT, 1)], frozenset())), sink)
    failure = await sink.failure()
    assert (failure.code, failure.message) == ("invalid_value", "The model 'm' does not take images.")
    assert llama.bodies == []


async def test_of_a_character_made_of_several_tokens_all_ids_are_known(open_engine: Open, llama: ToyLlama) -> None:
    emoji = "\U0001fabc"
    parts = [FIRST_BYTE + byte for byte in emoji.encode()]

    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        for event in (token_event(parts[-1], emoji), token_event(encode("!")[0]), token_event(EOS, ""), end_event()):
            on_event(event)

    llama.script = script
    sink, finish = await ran(open_engine(), prompt(HI))
    assert sink.text == f"{emoji}!"
    assert finish.record is not None
    assert finish.record.sampled.tolist() == [*parts, *encode("!"), EOS]


async def test_log_probabilities_are_those_before_sampling(open_engine: Open, llama: ToyLlama) -> None:
    first, other = encode("Yz")

    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(token_event(first, logprob=-0.25, likeliest={first: -0.25, other: -1.5, 7: -2.0}))
        on_event(end_event("length"))

    llama.script = script
    asked = prompt(HI, include=["message.output_text.logprobs"], top_logprobs=2)
    sink, _ = await ran(open_engine(), asked)
    [chunk] = sink.chunks
    assert isinstance(chunk, TextChunk)
    [found] = chunk.logprobs
    assert (found.token, found.logprob) == ("Y", -0.25)
    assert [(each.token, each.logprob) for each in found.top_logprobs] == [("Y", -0.25), ("z", -1.5)]
    assert llama.bodies[0]["n_probs"] == 2
    assert "post_sampling_probs" not in llama.bodies[0]


@pytest.mark.parametrize(("settings", "few"), [({}, True), ({"top_k": 40}, True), ({"top_k": 0}, False)])
async def test_ids_are_asked_for_in_the_way_that_costs_least(
    open_engine: Open, llama: ToyLlama, settings: dict[str, Any], few: bool
) -> None:
    await ran(open_engine(), prompt(HI, **settings))
    assert llama.bodies[0].get("post_sampling_probs", False) is few


def follow(*said: str) -> Callable[[dict[str, Any], OnEvent], None]:
    """A script that says texts in turn, but no Z where a schema forbids it."""
    left = list(said)

    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        say("{" if body["n_predict"] == 1 else left.pop(0))(body, on_event)

    return script


async def test_a_schema_is_tried_once_and_what_that_computed_is_not_called_kept(
    open_engine: Open, llama: ToyLlama
) -> None:
    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        trial = body["n_predict"] == 1
        on_event(progress_event(4 if trial else 90))
        for token in encode("{" if trial else "{}"):
            on_event(token_event(token))
        on_event(end_event("length" if trial else "stop", cached=90, output=2))

    llama.script = script
    engine = open_engine(stop=STOP)
    schema = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    sink, finish = await ran(engine, prompt(HI, text={"format": schema}, stop=["#"]))
    assert sink.text == "{}"
    assert finish.usage.cached_tokens == 4
    trial, body = llama.bodies
    assert trial["prompt"] == body["prompt"]
    assert trial["json_schema"] == body["json_schema"]
    [(token, by)] = trial["logit_bias"]
    assert (spelled([token]), by) == ("Z", 1000.0)
    assert "logit_bias" not in body
    _, finish = await ran(engine, prompt(HI, text={"format": schema}))
    assert len(llama.bodies) == 3
    assert finish.usage.cached_tokens == 90


async def test_a_schema_that_holds_nothing_back_is_refused(
    open_engine: Open, llama: ToyLlama, sink: RecordingSink
) -> None:
    llama.script = say("Z")
    schema: dict[str, Any] = {"type": "json_schema", "name": "x", "schema": {"not": {}}}
    open_engine().start(prompt(HI, text={"format": schema}), sink)
    failure = await sink.failure()
    assert failure.code == "invalid_request_error"
    assert "JSON schema" in failure.message
    assert len(llama.bodies) == 1


@pytest.mark.parametrize(
    ("choice", "said", "expected"),
    [
        ("required", '{"name": "add", "arguments": {"a": 1}}', ("add", '{"a": 1}')),
        ({"type": "custom", "name": "sh"}, '{"name": "sh", "arguments": {"input": "ls"}}', ("sh", "ls")),
    ],
)
async def test_a_forced_call_is_held_to_its_schema_and_said_anew_later(
    open_engine: Open, llama: ToyLlama, choice: object, said: str, expected: tuple[str, str]
) -> None:
    llama.script = follow(said)
    sink, finish = await ran(open_engine(stop=STOP), prompt(HI, tools=ADD, tool_choice=choice))
    assert sink.calls == [expected]
    assert isinstance(sink.chunks[-1], CallEnd)
    assert sum(chunk.tokens for chunk in sink.chunks) <= finish.usage.output_tokens
    assert "$defs" in llama.bodies[-1]["json_schema"]
    assert isinstance(finish.record, TokenRecord)
    assert not finish.record.verbatim


async def test_a_forced_call_that_is_cut_stays_open(open_engine: Open, llama: ToyLlama) -> None:
    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        text = "{" if body["n_predict"] == 1 else '{"name": "add", "arguments": {"a'
        say(text, end=None, reason="length")(body, on_event)

    llama.script = script
    sink, finish = await ran(open_engine(), prompt(HI, tools=ADD, tool_choice="required"))
    assert finish.reason is FinishReason.LENGTH
    assert sink.calls == [("add", '{"a')]
    assert not any(isinstance(chunk, CallEnd) for chunk in sink.chunks)


async def test_a_free_call_is_read_in_the_models_own_format(open_engine: Open, llama: ToyLlama) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    llama.script = say(call)
    sink, _ = await ran(open_engine(), prompt(HI, tools=ADD))
    assert sink.calls == [("add", '{"a": 1}')]


async def test_where_no_tool_may_be_called_what_looks_like_a_call_is_text(open_engine: Open, llama: ToyLlama) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    llama.script = say(call)
    sink, _ = await ran(open_engine(), prompt(HI, tools=ADD, tool_choice="none"))
    assert (sink.text, sink.calls) == (call, [])


async def test_a_schema_beside_free_tools_is_left_to_llamas_chat(open_engine: Open, llama: ToyLlama) -> None:
    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        for event in (text_event("{}"), text_event(finish="stop"), usage_event()):
            on_event(event)

    llama.script = script
    asked = prompt(HI, tools=ADD, text={"format": {"type": "json_object"}})
    engine = open_engine()
    sink, _ = await ran(engine, asked)
    assert sink.text == "{}"
    assert "messages" in llama.bodies[0]
    assert await engine.count(asked) is None


async def test_a_prompt_that_does_not_fit_is_refused_before_llama_is_asked(
    open_engine: Open, llama: ToyLlama, sink: RecordingSink
) -> None:
    llama.loaded = ToyLlama(context=50).loaded
    open_engine().start(prompt(grown(EMPTY, "word " * 20)), sink)
    failure = await sink.failure()
    assert failure.code == "context_length_exceeded"
    assert "tokens of at most 49" in failure.message
    assert llama.bodies == []


async def test_an_error_of_llamas_is_the_passes_failure(
    open_engine: Open, llama: ToyLlama, sink: RecordingSink
) -> None:
    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        on_event(json.dumps({"error": {"code": 400, "message": "Prompt contains invalid tokens"}}).encode())

    llama.script = script
    open_engine().start(prompt(HI), sink)
    assert (await sink.failure()).code == "invalid_request_error"


async def test_a_llama_that_does_not_encode_is_a_failure_of_the_server(
    open_engine: Open, llama: ToyLlama, sink: RecordingSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()

    def broken(*_: object, **__: object) -> list[int]:
        msg = "gone"
        raise OSError(msg)

    monkeypatch.setattr(LlamaTokenizer, "_ask", broken)
    engine.start(prompt(grown(EMPTY, "not seen before")), sink)
    assert (await sink.failure()).code == "server_error"


@pytest.mark.parametrize(("settings", "limit"), [({}, 12), ({"max_output_tokens": 30}, 30)])
@pytest.mark.parametrize("by_ids", [True, False])
async def test_an_answer_without_a_limit_of_its_own_gets_the_models(
    open_engine: Open, llama: ToyLlama, tmp_path: Path, settings: dict[str, Any], limit: int, by_ids: bool
) -> None:
    if by_ids:
        engine = open_engine(max_output=12)
    else:
        engine = LocalEngine(LocalConfig(), toy_file(tmp_path, max_output=12), llama)
        llama.script = FakeLlama().script
    await ran(engine, prompt(HI, **settings))
    [body] = llama.bodies
    assert body["n_predict" if by_ids else "max_tokens"] == limit


async def test_a_prompt_is_counted_without_being_run(open_engine: Open, llama: ToyLlama) -> None:
    engine = open_engine()
    assert isinstance(engine, CountingEngine)
    count = await engine.count(prompt(HI))
    assert llama.bodies == []
    await ran(engine, prompt(HI))
    assert count == len(llama.bodies[0]["prompt"])


async def test_what_the_template_refuses_is_the_clients_mistake(
    open_engine: Open, llama: ToyLlama, sink: RecordingSink
) -> None:
    refusing = MARKED + "{% if messages | length > 3 %}{{ raise_exception('too long') }}{% endif %}"
    llama.loaded = ToyLlama(refusing).loaded
    engine = open_engine()
    chain = EMPTY
    for text in "abcd":
        chain = grown(chain, text)
    engine.start(prompt(chain), sink)
    failure = await sink.failure()
    assert failure.code == "invalid_request_error"
    assert "too long" in failure.message
    with pytest.raises(RequestError):
        await engine.count(prompt(chain))


def differing(llama: ToyLlama) -> None:
    def shifted(*content: Any, **options: Any) -> list[int]:
        return [token + 1 for token in ToyLlama.tokenize(llama, *content, **options)]

    llama.tokenize = shifted  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("template", "change", "words"),
    [
        ("", None, "no chat template"),
        ("{{ messages[0].content }} [CALL: {{ tools }}]", None, "how it writes calls is not known"),
        ("<|channel|>{{ messages[0].content }}", None, "how it writes calls is not known"),
        ("{% if %}<tool_call>", None, "not valid"),
        (PACKAGED, differing, "its ids for"),
        ("{{ raise_exception('no') }}<tool_call>", None, "refuses"),
    ],
)
def test_a_model_that_cannot_be_spoken_with_is_left_to_llamas_chat_and_named(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    template: str,
    change: Callable[[ToyLlama], None] | None,
    words: str,
) -> None:
    llama = ToyLlama(template)
    if change is not None:
        change(llama)
    assert find_speech(LocalConfig(), toy_file(tmp_path), llama) is None
    assert "llama.cpp renders and tokenizes the whole conversation" in caplog.text
    assert words in caplog.text


def test_a_model_may_be_left_to_llamas_chat_on_purpose(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert find_speech(LocalConfig(rendered=False), toy_file(tmp_path), ToyLlama()) is None
    assert caplog.text == ""
