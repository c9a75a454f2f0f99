"""Calls that have to be made: the choice as a JSON schema, and the answer to it as a call. Pure.

Above it: `engine` and `stream`, and the local engine. Below it: `tools` and `frames`. llama.cpp offers a model that
must call a tool the tools' grammar, but lets it say anything first, and a small model never comes to the point. So the
answer is held to the schema `{"name": ..., "arguments": ...}` from its first token on, whatever the template calls a
call, and is read as one. The price: exactly one call is made, even where several would be welcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from turnwire.server.engine.chat.frames import CallPiece, Delta, FunctionPiece
from turnwire.server.engine.chat.tools import EncodedTools
from turnwire.server.prompt.parts import json_object
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import ToolChoice, ToolChoiceMode

_SPACE: Final = " \t\r\n"


def forced_names(choice: ToolChoice, tools: EncodedTools) -> tuple[str, ...]:
    """Returns the functions of which one has to be called, by their names on the wire; empty where none has to."""
    if not tools.functions:
        return ()
    match choice.WhichOneof("form"):
        case "mode" if choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED:
            return tuple(tools.functions)
        case "named" if choice.named.type == "allowed_tools":
            if choice.named.mode != "required":
                return ()
            named = [tools.find(str(json_object(text).get("name", ""))) for text in choice.named.tools]
            return tuple(dict.fromkeys(name for name in named if name is not None))
        case "named":
            name = tools.find(choice.named.name)
            return () if name is None else (name,)
        case _:
            return ()


def forcing(settings: ResponseCreate, names: Sequence[str], tools: EncodedTools) -> None:
    """Changes settings so that the answer is a call of one of some functions."""
    settings.tool_choice.Clear()
    settings.tool_choice.mode = ToolChoiceMode.TOOL_CHOICE_MODE_AUTO
    wanted = settings.text.format.json_schema
    wanted.name = "call"
    wanted.schema = json.dumps(call_schema(names, tools.functions), ensure_ascii=False)
    wanted.strict = True


def call_schema(names: Sequence[str], functions: Mapping[str, bytes]) -> dict[str, Any]:
    """Returns the schema of a call of one of some functions; each one's own schema stands under `$defs`."""
    calls: list[dict[str, Any]] = []
    schemas: dict[str, Any] = {}
    for number, name in enumerate(names):
        function = cast("dict[str, Any]", msgspec.json.decode(functions[name]))["function"]
        key = f"arguments{number}"
        schemas[key] = _moved(function.get("parameters") or {"type": "object"}, f"#/$defs/{key}")
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{key}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), "$defs": schemas}


def _moved(schema: object, root: str) -> Any:
    """Returns a schema whose references to itself start elsewhere."""
    if isinstance(schema, list):
        return [_moved(each, root) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    moved = {key: _moved(value, root) for key, value in fields.items()}
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved


class ForcedCall:
    """Reads an answer that is a call as JSON."""

    def __init__(self) -> None:
        self._reader: Final = CallReader()
        self._taken: list[str] = []
        """What was said before there was a name."""
        self._begun = False
        self._free = False

    def read(self, delta: Delta) -> Delta:
        """Returns a piece of the answer as it is to be read: text becomes a call, everything else stays as it is.

        An upstream that writes calls as calls, or text that is no object, is not held to anything.
        """
        text = delta.content
        if self._free or not isinstance(text, str) or not text:
            return delta
        if not self._taken and (delta.tool_calls or text.lstrip()[:1] not in ("", "{")):
            self._free = True
            return delta
        if not self._begun:
            self._taken.append(text)
        arguments = self._reader.feed(text)
        pieces: list[CallPiece] = []
        if self._reader.name is not None and (arguments or not self._begun):
            name = None if self._begun else self._reader.name
            self._begun = True
            pieces.append(CallPiece(0, None, FunctionPiece(name, arguments)))
        return Delta(reasoning_content=delta.reasoning_content or delta.reasoning, tool_calls=pieces or None)

    def rest(self) -> str:
        """Returns what an answer that is over said without calling anything."""
        return "" if self._begun else "".join(self._taken)


class CallReader:
    """Finds name and arguments in `{"name": ..., "arguments": ...}` as its text comes in."""

    def __init__(self) -> None:
        self.name: str | None = None
        """The name, once it is known."""
        self._key: str | None = None
        """The member whose value is being read; None while it is a key."""
        self._held = ""
        """A key, or a value that is not passed on."""
        self._early = ""
        """Arguments that came before the name."""
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, text: str) -> str:
        """Takes the next piece of text and returns the piece of the arguments that it brings."""
        out: list[str] = []
        for letter in text:
            self._step(letter, out)
        return "".join(out)

    def _step(self, letter: str, out: list[str]) -> None:
        if self._quoted:
            self._keep(letter, out)
            self._quoted = self._escaped or letter != '"'
            self._escaped = not self._escaped and letter == "\\"
            return
        if letter == '"':
            self._quoted = True
        elif self._depth <= 1:
            if letter in _SPACE:
                return
            if self._depth == 0:
                self._depth = int(letter == "{")
                return
            if letter == ":" and self._key is None:
                self._key, self._held = _string(self._held), ""
                return
            if letter in ",}":
                self._end(out)
                self._depth = int(letter == ",")
                return
        self._keep(letter, out)
        if not self._quoted:
            self._depth += (letter in "{[") - (letter in "}]")

    def _keep(self, letter: str, out: list[str]) -> None:
        if self._key != "arguments":
            self._held += letter
        elif self.name is None:
            self._early += letter
        else:
            out.append(letter)

    def _end(self, out: list[str]) -> None:
        if self._key == "name":
            self.name = _string(self._held)
            out.append(self._early)
            self._early = ""
        self._key, self._held = None, ""


def _string(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        # Nothing that the schema allows; then it is no known name either.
        return text
