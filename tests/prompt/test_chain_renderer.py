"""A chain's prompts: each turn pays for what is new, and knows what the engine has seen already."""

from __future__ import annotations

from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnwire.server.engine.tokens.rendering import ChainRenderer, RenderedPrompt, read_model_files
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.harmony.marks import CALL, CHANNEL, END, MESSAGE, RETURN, START, word
from turnwire.server.prompt.template import TemplateRenderer
from turnwire.server.prompt.template.tokens import TemplateTokenizer
from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.item_pb2 import (
    ContentPart,
    FunctionCall,
    FunctionCallOutput,
    Item,
    McpCall,
    Message,
    MessageContent,
    Reasoning,
    ReasoningText,
    Role,
    ToolOutput,
)
from turnwire.v1.response_pb2 import ReasoningConfig, ResponseCreate

from .models import model


def message(text: str, role: Role.ValueType = Role.ROLE_USER) -> Item:
    return Item(message=Message(role=role, content=MessageContent(text=text)))


def call(number: int) -> Item:
    return Item(function_call=FunctionCall(call_id=f"c{number}", name="read", arguments='{"n":1}'))


def output(number: int) -> Item:
    return Item(function_call_output=FunctionCallOutput(call_id=f"c{number}", output=ToolOutput(text="a line\n" * 20)))


def reasoning(text: str) -> Item:
    return Item(reasoning=Reasoning(content=[ContentPart(reasoning_text=ReasoningText(text=text))]))


def text(ids: array[int]) -> str:
    return vocabulary.encoding().decode(list(ids))


def sampled(*messages: tuple[str, str, int]) -> array[int]:
    ids = array("I")
    for channel, content, end in messages:
        if ids:
            ids.extend((START, *word("assistant")))
        name, _, rest = channel.partition(" ")
        header = [*word(name), *(vocabulary.encode(f" {rest}") if rest else [])]
        ids.extend((CHANNEL, *header, MESSAGE, *vocabulary.encode(content), end))
    return ids


class Chat:
    """One chain of one model."""

    def __init__(self, renderer: ChainRenderer | None = None) -> None:
        self.renderer = renderer or ChainRenderer(HarmonyRenderer(), today=lambda: "2031-01-01")
        self.transcript: Transcript = EMPTY
        self.settings = ResponseCreate(instructions="Be brief.")

    def add(self, *items: Item, origin: Origin = Origin.INPUT, record: TokenRecord | None = None) -> None:
        entries = [Entry(item.SerializeToString(), origin, 1) for item in items]
        self.transcript = self.transcript.extend(entries, frozenset(), record=record)

    def say(self, ids: array[int], *items: Item, origin: Origin = Origin.MODEL) -> None:
        renderer = self.renderer.renderer
        record = TokenRecord(array("I"), ids, array("f"), renderer.template_hash, renderer.tokenizer_hash)
        self.add(*items, origin=origin, record=record)

    def loop(self, number: int) -> None:
        """One step of a tool loop: reasoning and a call, sampled, then its output."""
        ids = sampled(("analysis", f"step {number}", END), ("commentary to=functions.read", '{"n":1}', CALL))
        self.say(ids, reasoning(f"step {number}"), call(number))
        self.add(output(number), origin=Origin.APPEND)

    def answer(self, number: int) -> None:
        """A final answer, sampled."""
        ids = sampled(("analysis", "done", END), ("final", f"answer {number}", RETURN))
        self.say(ids, reasoning("done"), message(f"answer {number}", Role.ROLE_ASSISTANT))

    def prompt(self) -> Prompt:
        return Prompt(1, "resp_1", "gpt-oss", self.settings, NO_TOOLS, self.transcript, 0, 0, 0)

    def render(self) -> RenderedPrompt:
        return self.renderer.render(self.prompt())


def test_two_hundred_turns_render_each_new_item_once() -> None:
    chat = Chat()
    chat.add(message("go"))
    first = chat.render()
    assert (first.stats.items_rendered, first.stats.first, first.cached) == (1, True, 0)
    rendered = 0
    for turn in range(200):
        before = chat.render().rendered.length
        chat.loop(turn)
        record = chat.transcript.parent
        assert record is not None
        assert record.record is not None
        made = chat.render()
        stats = made.stats
        rendered += stats.items_rendered
        assert (stats.items_rendered, stats.retailed, stats.whole, stats.first) == (1, 0, False, False)
        assert made.cached == before + len(record.record.sampled)
        assert len(made.new) == made.rendered.length - made.cached
    assert rendered == 200


def test_a_finished_turn_is_gone_through_once_more_and_only_its_own_tail() -> None:
    chat = Chat()
    retailed: list[int] = []
    for turn in range(30):
        chat.add(message(f"question {turn}"))
        chat.render()
        chat.loop(turn)
        chat.render()
        chat.answer(turn)
        chat.add(message("thanks"))
        made = chat.render()
        retailed.append(made.stats.retailed)
        assert made.stats.items_rendered == 1
        assert "step" not in text(made.rendered.join())
        chat.say(sampled(("final", "welcome", RETURN)), message("welcome", Role.ROLE_ASSISTANT))
    assert max(retailed) - min(retailed) < 10


def test_the_tokens_are_those_of_a_chain_rendered_at_once() -> None:
    chat = Chat()
    for turn in range(5):
        chat.add(message(f"question {turn}"))
        chat.render()
        chat.loop(turn)
        chat.render()
        chat.answer(turn)
    chat.add(message("last"))
    made = chat.render()
    again = Chat(chat.renderer)
    for entry in chat.transcript.walk():
        again.add(entry.item())
    # As sampled and as rendered differ only in the mark before "json", which this model did not write.
    plain = text(again.render().rendered.join()).replace(" <|constrain|>json", "")
    flat = text(made.rendered.join()).replace(
        "<|channel|>commentary to=functions.read", " to=functions.read<|channel|>commentary"
    )
    assert flat == plain


def test_what_the_engine_has_seen_ends_where_something_was_dropped() -> None:
    chat = Chat()
    chat.add(message("one"))
    first = chat.render()
    chat.answer(1)
    chat.add(message("two"))
    second = chat.render()
    # The opening of the answer and the mark of its channel stay; "analysis" became "final".
    assert second.cached == first.rendered.length + 1
    assert second.rendered.join()[second.cached :] == second.new


def test_other_instructions_render_everything_again_and_say_so() -> None:
    chat = Chat()
    chat.add(message("one"))
    first = chat.render()
    chat.loop(1)
    chat.settings = ResponseCreate(instructions="Be long.")
    made = chat.render()
    assert (made.stats.prefix_changed, made.stats.first, made.stats.items_rendered) == (True, False, 2)
    assert "Be long." in text(made.rendered.join())
    assert made.cached < first.rendered.length - 5
    assert not chat.render().stats.prefix_changed


def test_forks_pay_for_what_is_new_on_their_branch() -> None:
    chat = Chat()
    chat.add(message("one"))
    chat.render()
    chat.loop(1)
    chat.render()
    branch = chat.transcript
    chat.add(message("left"))
    left = chat.render()
    chat.transcript = branch
    chat.add(message("right"))
    right = chat.render()
    assert left.stats.items_rendered == right.stats.items_rendered == 1
    assert left.cached == right.cached


def test_a_chain_keeps_the_date_it_began_with() -> None:
    dates = iter(["2031-01-01", "2031-01-02", "2031-01-03"])
    chat = Chat(ChainRenderer(HarmonyRenderer(), today=lambda: next(dates)))
    chat.add(message("one"))
    chat.render()
    chat.loop(1)
    made = chat.render()
    assert "Current date: 2031-01-01" in text(made.rendered.join())
    assert not made.stats.prefix_changed


def test_tokens_of_another_format_are_not_taken_over() -> None:
    chat = Chat()
    chat.add(message("one"))
    chat.render()
    record = TokenRecord(array("I"), array("I", [1, 2, 3]), array("f"), "another", "another")
    chat.add(message("hello", Role.ROLE_ASSISTANT), origin=Origin.MODEL, record=record)
    chat.add(message("two"))
    made = chat.render()
    assert made.stats.items_rendered == 2
    assert "final<|message|>hello<|end|>" in text(made.rendered.join())


def test_a_hosted_call_is_sampled_and_its_output_rendered() -> None:
    chat = Chat()
    chat.add(message("one"))
    chat.render()
    ids = sampled(("commentary to=functions.docs__find", "{}", CALL))
    found = McpCall(id="mcp_1", server_label="docs", name="find", arguments="{}", output="found it")
    chat.say(ids, Item(mcp_call=found), origin=Origin.HOSTED)
    made = chat.render()
    shown = text(made.rendered.join())
    assert shown.count("to=functions.docs__find") == 1
    assert "<|start|>functions.docs__find to=assistant<|channel|>commentary<|message|>found it<|end|>" in shown


def test_rendering_again_is_the_same_and_free() -> None:
    chat = Chat()
    chat.add(message("one"))
    first = chat.render()
    second = chat.render()
    assert second.rendered.join() == first.rendered.join()
    assert (second.stats.items_rendered, len(second.new)) == (0, 0)


def test_threads_may_render_the_same_chain_at_once() -> None:
    chat = Chat()
    chat.add(message("one"))
    for turn in range(10):
        chat.loop(turn)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(chat.render) for _ in range(32)]
    made = [future.result().rendered.join() for future in futures]
    assert all(each == made[0] for each in made)


def test_reasoning_of_all_turns_stays_where_the_request_wants_it() -> None:
    chat = Chat()
    chat.settings.reasoning.CopyFrom(ReasoningConfig(context="all_turns", effort="high"))
    chat.add(message("one"))
    chat.render()
    chat.answer(1)
    chat.add(message("two"))
    made = chat.render()
    shown = text(made.rendered.join())
    assert "analysis<|message|>done<|end|>" in shown
    assert "Reasoning: high" in shown
    assert made.stats.retailed == 0


def test_a_template_that_appends_renders_each_new_item_once_too() -> None:
    renderer = model("headers").renderer
    chat = Chat(ChainRenderer(renderer, today=lambda: "2031-01-01"))
    chat.add(message("go"))
    chat.render()
    end = renderer.stop_token_ids[-1]
    for turn in range(200):
        before = chat.render().rendered.length
        ids = array("I", [*renderer.tokenizer.encode('{"name": "read", "parameters": {}}', begins=False), end])
        chat.say(ids, call(turn))
        chat.add(output(turn), origin=Origin.APPEND)
        made = chat.render()
        assert (made.stats.items_rendered, made.stats.whole) == (1, False)
        assert made.cached == before + len(ids)


def test_a_template_that_drops_reasoning_is_whole_once_a_question() -> None:
    renderer = model("chatml").renderer
    chat = Chat(ChainRenderer(renderer, today=lambda: "2031-01-01"))
    whole: list[bool] = []
    end = renderer.stop_token_ids[-1]
    ids = array("I", [*renderer.tokenizer.encode("hello", begins=False), end])
    for turn in range(3):
        chat.add(message("go"))
        whole.append(chat.render().stats.whole)
        chat.say(ids, reasoning("hm"), call(turn))
        chat.add(output(turn), origin=Origin.APPEND)
        whole.append(chat.render().stats.whole)
        chat.say(ids, reasoning("hm"), message("hello", Role.ROLE_ASSISTANT))
    assert whole == [False, False, True, False, True, False]


def test_a_whole_rendering_shows_the_history_from_its_items() -> None:
    renderer = model("chatml").renderer
    chat = Chat(ChainRenderer(renderer, today=lambda: "2031-01-01"))
    end = renderer.stop_token_ids[-1]
    made = None
    for turn in range(3):
        chat.add(message(f"question {turn}"))
        made = chat.render()
        ids = array("I", [*renderer.tokenizer.encode(f"answer {turn}", begins=False), end])
        chat.say(ids, reasoning("secret"), message(f"answer {turn}", Role.ROLE_ASSISTANT))
    assert made is not None
    assert isinstance(renderer.tokenizer, TemplateTokenizer)
    shown = renderer.tokenizer.decode(made.rendered.join())
    assert [shown.count(f"question {turn}") for turn in range(3)] == [1, 1, 1]
    assert [shown.count(f"answer {turn}") for turn in range(2)] == [1, 1]
    assert "secret" not in shown


def test_a_models_folder_is_all_that_a_template_needs(tmp_path: Path) -> None:
    for name, data in model("headers").files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    renderer = TemplateRenderer(read_model_files(tmp_path))
    assert renderer.template_hash == model("headers").renderer.template_hash
    assert renderer.stop_token_ids[:2] == (7, 8)
    with pytest.raises(NotADirectoryError, match="is no folder"):
        read_model_files(tmp_path / "nowhere")
