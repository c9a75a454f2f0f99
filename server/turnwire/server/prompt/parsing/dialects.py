"""The formats of open models that write calls as text: which marks they have and what reads what follows.

Above it: the factory and the parser of tagged text. Below it: the readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turnwire.server.prompt.parsing.calls import Offered, Reader
from turnwire.server.prompt.parsing.forms import BLANKS, Ahead, Form, Run
from turnwire.server.prompt.parsing.marked_call import CallMarks, MarkedCall, value_ends
from turnwire.server.prompt.parsing.pythonic import PythonCalls
from turnwire.server.prompt.parsing.readers import Closing, ListOrNamed, NamedArguments, ObjectList, TaggedObject

MakeReader = Callable[[Offered], Reader]
"""Makes a reader, given the tools offered."""


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
    in_reasoning: tuple[str, ...] = ()
    """Of the openers, those that end reasoning too: some models forget to close it before they call."""
    signs: tuple[str, ...] = ()
    """What a chat template of such models holds and others do not; by default the openers."""


def _hermes(_: Offered) -> Reader:
    return TaggedObject("<tool_call>", "</tool_call>")


def _python_tag(_: Offered) -> Reader:
    return ObjectList()


def _bare_objects(tools: Offered) -> Reader:
    return ObjectList(bare=True, offered=tools.names)


_MISTRAL_HEADER: Final = re.compile(r"\s*(?P<name>[\w.\-]+)(?:\[CALL_ID\](?P<id>[\w\-]+))?(?:\[ARGS\])?\s*")


def _mistral(_: Offered) -> Reader:
    return ListOrNamed(_MISTRAL_HEADER)


def _deepseek_mark(words: str) -> str:
    """Spells a special token of DeepSeek, with its own bars and blanks."""
    return f"<\uff5c{words.replace(' ', chr(0x2581))}\uff5c>"


_SEPARATOR: Final = _deepseek_mark("tool sep")
_DEEPSEEK_HEADER: Final = re.compile(
    rf"\s*(?:function{_SEPARATOR})?\s*(?P<name>[^\s<>`]+)(?:{_SEPARATOR})?\s*(?:```(?:json)?)?\s*"
)


def _deepseek(_: Offered) -> Reader:
    return NamedArguments(_DEEPSEEK_HEADER, Closing(_deepseek_mark("tool call end"), _deepseek_mark("tool call begin")))


_KIMI_HEADER: Final = re.compile(
    r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.\-]+?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>\s*"
)


def _kimi(_: Offered) -> Reader:
    return NamedArguments(_KIMI_HEADER, Closing("<|tool_call_end|>", "<|tool_call_begin|>"))


def _python_list(tools: Offered) -> Reader:
    return PythonCalls(offered=tools.names)


def _python_fence(tools: Offered) -> Reader:
    return PythonCalls(offered=tools.names, closer="```")


_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_CALL, _CALL_END = "<tool_call>", "</tool_call>"


def _qwen_marks(opener: str) -> CallMarks:
    """Spells calls behind `<tool_call>` or, where a model forgets it, behind `<function=`."""
    name = Run(r"[^<>\n]", "name", 1)
    return CallMarks(
        header=Form((BLANKS, _FUNCTION, name, ">") if opener == _CALL else (name, ">")),
        argument=Form((BLANKS, _PARAMETER, name, ">")),
        value_mark=_PARAMETER_END,
        value_ends=value_ends(
            _PARAMETER_END,
            (_PARAMETER, _FUNCTION_END, _CALL_END),
            ((_FUNCTION_END, BLANKS, _CALL_END), (_CALL_END, BLANKS, _CALL), ("\n", _PARAMETER)),
            lines=True,
        ),
        end=Form((BLANKS, _FUNCTION_END), (BLANKS, Ahead((_CALL_END, _CALL, _FUNCTION)))),
        tail=(_PARAMETER_END, _FUNCTION_END, _CALL_END),
        closing=(_CALL_END, _FUNCTION),
        lines=True,
    )


_QWEN: Final = _qwen_marks(_CALL)
_QWEN_BARE: Final = _qwen_marks(_FUNCTION)


def _qwen(tools: Offered) -> Reader:
    return MarkedCall(_QWEN, tools)


def _qwen_bare(tools: Offered) -> Reader:
    return MarkedCall(_QWEN_BARE, tools, bare=True)


_KEY, _KEY_END, _VALUE, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_GLM: Final = CallMarks(
    header=Form((BLANKS, Run(r"[\w.\-]", "name", 1), BLANKS, Ahead((_KEY, _CALL_END)))),
    argument=Form((BLANKS, _KEY, Run("[^<]", "name", 1), _KEY_END, BLANKS, _VALUE)),
    value_mark=_VALUE_END,
    value_ends=value_ends(_VALUE_END, (_KEY, _CALL_END), ((_CALL_END, BLANKS, _CALL),)),
    end=Form((BLANKS, _CALL_END), (BLANKS, Ahead((_CALL,)))),
    tail=(_VALUE_END, _CALL_END),
)


def _glm(tools: Offered) -> Reader:
    return MarkedCall(_GLM, tools)


_DSML: Final = "\uff5cDSML\uff5c"
_DSML_BLOCKS: Final = tuple(f"<{_DSML}{block}>" for block in ("function_calls", "tool_calls", " calls"))
_DSML_BLOCK_ENDS: Final = tuple(f"</{block[1:]}" for block in _DSML_BLOCKS)


def _dsml_opener(blank: str) -> str:
    return f"<{_DSML}{blank}invoke"


def _dsml(blank: str) -> MakeReader:
    """Reads the calls of DeepSeek's markup; newer models write a blank into their marks."""
    opener, end = _dsml_opener(blank), f"</{_DSML}{blank}invoke>"
    argument, argument_end = f"<{_DSML}{blank}parameter", f"</{_DSML}{blank}parameter>"
    named = (' name="', Run(r'[^"<>\n]', "name", 1), '"', Run(r"[^<>\n]", "rest"), ">")
    marks = CallMarks(
        header=Form(named),
        argument=Form((BLANKS, argument, *named)),
        value_mark=argument_end,
        value_ends=value_ends(
            argument_end,
            (argument, end, *_DSML_BLOCK_ENDS),
            tuple((end, BLANKS, follower) for follower in (opener, *_DSML_BLOCK_ENDS)),
        ),
        end=Form((BLANKS, end), (BLANKS, Ahead((opener, *_DSML_BLOCK_ENDS)))),
        tail=(argument_end, end, *_DSML_BLOCK_ENDS),
    )
    return lambda tools: MarkedCall(marks, tools)


DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (
        Dialect("text"),
        Dialect(
            "qwen-coder",
            openers={_CALL: _qwen, _FUNCTION: _qwen_bare},
            in_reasoning=(_CALL,),
            signs=(_FUNCTION,),
        ),
        Dialect("glm", openers={_CALL: _glm}, signs=(_KEY,)),
        Dialect("hermes", openers={_CALL: _hermes}),
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
            "dsml",
            openers={_dsml_opener(blank): _dsml(blank) for blank in ("", " ")},
            framing=(*_DSML_BLOCKS, *_DSML_BLOCK_ENDS),
            signs=(_DSML,),
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
"""All of them by name, in the order in which they are looked for in templates."""

# Marks that only readers look at, which must be visible all the same.
INNER_MARKS: Final = (
    _CALL_END,
    _KEY,
    _KEY_END,
    _VALUE,
    _VALUE_END,
    _DSML,
    "[ARGS]",
    "[CALL_ID]",
    _SEPARATOR,
    "<|tool_call_argument_begin|>",
)
