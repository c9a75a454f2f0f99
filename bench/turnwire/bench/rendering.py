"""Measures what rendering a turn costs, by how much was said before: remembered, and rendered from nothing.

Above: the smoke benchmark. Below: the renderers of the server, without sessions or engines. The template and its
tokenizer are made here, so that nothing has to be fetched: a plain template that appends, and a vocabulary trained on
a few lines.
"""

from __future__ import annotations

import importlib
import json
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from turnwire.server.engine.tokens.rendering import ChainRenderer
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.renderer import Renderer
from turnwire.server.prompt.template import TemplateRenderer
from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import Tools, ToolSets
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.item_pb2 import FunctionCall, FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

HISTORIES: Final = (1, 100, 1000)
"""KB said before the turns that are measured."""

_OUTPUT: Final = "    if value is None:\n        return default  # nothing was found\n" * 15
"""A tool's output of about 1 KB."""

_TEMPLATE: Final = (
    "{% if messages[0].role == 'system' or tools %}<|im_start|>system\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for tool in tools or [] %}\n{{ tool | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if message.role != 'system' %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What rendering costs at one size of history, in microseconds."""

    kilobytes: int
    tokens: int
    """Of the prompt, before the turns that are measured."""
    cached_us: float
    """Median of a turn of one call and 1 KB of output, with the chain remembered."""
    joined_us: float
    """Median of putting the prompt's packed bytes together for an engine, on top of that."""
    uncached_us: float
    """The same prompt rendered from nothing, as a stateless server does every turn."""


def measure(turns: int = 20) -> dict[str, list[Cost]]:
    """Measures the renderers.

    Args:
        turns: Turns measured per history.

    Returns:
        The costs by renderer, `harmony` and `template`, for each size of history.
    """
    tools = ToolSets().intern(_tools())
    files = _files()
    harmony, template = HarmonyRenderer(), TemplateRenderer(files)
    call = vocabulary.encode("{}")
    # <|channel|>commentary to=functions.read <|constrain|>json<|message|>{}<|call|>
    header = [200005, *vocabulary.encode("commentary to=functions.read "), 200003, *vocabulary.encode("json"), 200008]
    sampled_harmony = array("I", [*header, *call, harmony.stop_token_ids[-1]])
    text = template.tokenizer.encode("<tool_call>{}</tool_call>", begins=False)
    sampled_template = array("I", [*text, template.stop_token_ids[-1]])
    return {
        "harmony": [_cost(HarmonyRenderer, tools, size, turns, sampled_harmony) for size in HISTORIES],
        "template": [
            _cost(lambda: TemplateRenderer(files), tools, size, turns, sampled_template) for size in HISTORIES
        ],
    }


def _cost(fresh: Callable[[], Renderer], tools: Tools, kilobytes: int, turns: int, sampled: array[int]) -> Cost:
    chat = _Chat(fresh(), tools, sampled)
    chat.begin(kilobytes)
    first = chat.render()
    chat.turn()
    chat.render()  # Proofs of a template are made here, outside the measurement.
    cached: list[float] = []
    joined: list[float] = []
    for _ in range(turns):
        chat.turn()
        cached.append(_timed(chat.render))
        joined.append(_timed(chat.pack))
    # Renderers remember prefixes and long runs, so that each of these has to be a new one.
    strangers = [fresh() for _ in range(3 if kilobytes > 100 else 5)]
    uncached = [_timed(partial(chat.render_from_nothing, stranger)) for stranger in strangers]
    return Cost(kilobytes, first, statistics.median(cached), statistics.median(joined), statistics.median(uncached))


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e6


class _Chat:
    """A chain of calls and outputs."""

    def __init__(self, renderer: Renderer, tools: Tools, sampled: array[int]) -> None:
        self._renderer = ChainRenderer(renderer, today=_today)
        self._tools = tools
        self._sampled = sampled
        self._settings = ResponseCreate(model="m", instructions="You repair programs. " * 20)
        self._transcript: Transcript = EMPTY
        self._calls = 0
        self._rendered = self._renderer.render(self._prompt(EMPTY.extend((), frozenset())))

    def begin(self, kilobytes: int) -> None:
        items = [Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text="Repair it.")))]
        for _ in range(kilobytes):
            items += self._exchange()
        self._add(items)

    def turn(self) -> None:
        called, answered = self._exchange()
        renderer = self._renderer.renderer
        record = TokenRecord(array("I"), self._sampled, array("f"), renderer.template_hash, renderer.tokenizer_hash)
        self._add([called], Origin.MODEL, record)
        self._add([answered], Origin.APPEND)

    def render(self) -> int:
        self._rendered = self._renderer.render(self._prompt(self._transcript))
        return self._rendered.rendered.length

    def pack(self) -> bytes:
        return self._rendered.rendered.packed()

    def render_from_nothing(self, renderer: Renderer) -> int:
        # The same items in one segment that nobody has seen, as a stateless request brings them; parsing them from
        # their bytes is part of what it costs.
        entries = tuple(self._transcript.walk())
        transcript = Transcript(None, entries, frozenset(), 0)
        return ChainRenderer(renderer, today=_today).render(self._prompt(transcript)).rendered.length

    def _prompt(self, transcript: Transcript) -> Prompt:
        return Prompt(1, "resp_1", "m", self._settings, self._tools, transcript, 0, 0, 0)

    def _exchange(self) -> tuple[Item, Item]:
        self._calls += 1
        call_id = f"call_{self._calls}"
        # No two outputs are equal, or a cache of runs would answer for a renderer.
        output = f"# {self._calls}\n{_OUTPUT}"
        return (
            Item(function_call=FunctionCall(call_id=call_id, name="read", arguments="{}")),
            Item(function_call_output=FunctionCallOutput(call_id=call_id, output=ToolOutput(text=output))),
        )

    def _add(self, items: list[Item], origin: Origin = Origin.INPUT, record: TokenRecord | None = None) -> None:
        entries = [Entry(item.SerializeToString(), origin, 1) for item in items]
        self._transcript = self._transcript.extend(entries, frozenset(), record=record)


def _today() -> str:
    return "2031-01-01"


def _tools() -> ToolSet:
    """Returns 20 functions, about 20 KB."""
    properties = {f"option_{n}": {"type": "string", "description": "What to do about it. " * 8} for n in range(5)}
    parameters = json.dumps({"type": "object", "properties": properties})
    return ToolSet(
        tools=[
            Tool(function=FunctionTool(name=f"tool_{n}", description="Does it.", parameters=parameters))
            for n in range(20)
        ]
    )


def _files() -> dict[str, bytes]:
    """Returns the files of a model that appends."""
    library: Any = importlib.import_module("tokenizers")
    model = library.Tokenizer(library.models.BPE())
    model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator([_OUTPUT, _TEMPLATE, __doc__ or ""] * 4, trainer)
    model.add_special_tokens(["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"])
    return {"tokenizer.json": model.to_str().encode(), "chat_template.jinja": _TEMPLATE.encode()}
