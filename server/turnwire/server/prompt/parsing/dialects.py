"""The formats of open models that write calls as text: which marks they have and what reads what follows.

Above it: the factory and the parser of tagged text. Below it: the readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turnwire.server.prompt.parsing.calls import Reader
from turnwire.server.prompt.parsing.pythonic import PythonCalls
from turnwire.server.prompt.parsing.readers import Closing, ListOrNamed, NamedArguments, ObjectList, TaggedObject

MakeReader = Callable[[frozenset[str]], Reader]
"""Makes a reader, given the names of the tools offered."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to write reasoning and calls."""

    name: str
    openers: Mapping[str, MakeReader] = field(default_factory=dict[str, MakeReader])
    """Marks behind which calls follow, wherever they stand."""
    first: Mapping[str, MakeReader] = field(default_factory=dict[str, MakeReader])
    """Characters with which a call may begin where text would, read from that character on."""
    framing: tuple[str, ...] = ()
    """Marks that mean nothing by themselves."""
    think: tuple[str, str] = ("<think>", "</think>")
    """The marks around reasoning."""


def _hermes(_: frozenset[str]) -> Reader:
    return TaggedObject("<tool_call>", "</tool_call>")


def _python_tag(_: frozenset[str]) -> Reader:
    return ObjectList()


def _bare_objects(tools: frozenset[str]) -> Reader:
    return ObjectList(bare=True, offered=tools)


_MISTRAL_HEADER: Final = re.compile(r"\s*(?P<name>[\w.\-]+)(?:\[CALL_ID\](?P<id>[\w\-]+))?(?:\[ARGS\])?\s*")


def _mistral(_: frozenset[str]) -> Reader:
    return ListOrNamed(_MISTRAL_HEADER)


def _deepseek_mark(words: str) -> str:
    """Spells a special token of DeepSeek, with its own bars and blanks."""
    return f"<\uff5c{words.replace(' ', chr(0x2581))}\uff5c>"


_SEPARATOR: Final = _deepseek_mark("tool sep")
_DEEPSEEK_HEADER: Final = re.compile(
    rf"\s*(?:function{_SEPARATOR})?\s*(?P<name>[^\s<>`]+)(?:{_SEPARATOR})?\s*(?:```(?:json)?)?\s*"
)


def _deepseek(_: frozenset[str]) -> Reader:
    return NamedArguments(_DEEPSEEK_HEADER, Closing(_deepseek_mark("tool call end"), _deepseek_mark("tool call begin")))


_KIMI_HEADER: Final = re.compile(
    r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.\-]+?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>\s*"
)


def _kimi(_: frozenset[str]) -> Reader:
    return NamedArguments(_KIMI_HEADER, Closing("<|tool_call_end|>", "<|tool_call_begin|>"))


def _python_list(tools: frozenset[str]) -> Reader:
    return PythonCalls(offered=tools)


def _python_fence(tools: frozenset[str]) -> Reader:
    return PythonCalls(offered=tools, closer="```")


DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (
        Dialect("text"),
        Dialect("hermes", openers={"<tool_call>": _hermes}),
        Dialect("llama", openers={"<|python_tag|>": _python_tag}, first={"{": _bare_objects}),
        Dialect("mistral", openers={"[TOOL_CALLS]": _mistral}, think=("[THINK]", "[/THINK]")),
        Dialect(
            "deepseek",
            openers={_deepseek_mark("tool call begin"): _deepseek},
            framing=(
                _deepseek_mark("tool calls begin"),
                _deepseek_mark("tool calls end"),
                _deepseek_mark("tool call end"),
            ),
        ),
        Dialect(
            "kimi",
            openers={"<|tool_call_begin|>": _kimi},
            framing=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_end|>"),
        ),
        Dialect(
            "pythonic",
            openers={"```tool_code": _python_fence},
            first={"[": _python_list},
            framing=("<|python_start|>", "<|python_end|>"),
        ),
    )
}
"""All of them by name."""

# Marks that only readers look at, which must be visible all the same.
INNER_MARKS: Final = (
    "</tool_call>",
    "[ARGS]",
    "[CALL_ID]",
    _SEPARATOR,
    "<|tool_call_argument_begin|>",
)
