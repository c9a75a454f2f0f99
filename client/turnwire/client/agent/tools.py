"""Turns typed Python functions into tools a model can call.

Below: pydantic, which writes the schemas and checks the arguments. Above: the agent loop, which sends
`ToolSet.definitions()` with a create and hands each call's arguments to `ToolSet.run`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints, overload

from turnwire.client.agent.docstrings import argument_descriptions, summary
from turnwire.client.agent.output import DEFAULT_LIMIT, bound_text

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
    from pydantic.fields import FieldInfo
    from pydantic_core import to_json
except ImportError as error:
    msg = "tools need pydantic: pip install 'turnwire[agent]'"
    raise ImportError(msg) from error

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = "__turnwire_tool__"
# Argument names may be anything, also names that a pydantic model uses itself (`json`, `copy`, `schema`), so the
# fields behind them get a prefix and go by their alias.
_PREFIX = "argument_"


class ToolError(Exception):
    """Raised by a tool to tell the model, in exactly these words, why it could not do what was asked."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a model is told about a tool."""

    name: str
    """The name by which the model calls it: 1 to 64 letters, digits, `_` or `-`."""
    description: str
    """One paragraph; empty if the function has no docstring."""
    parameters_json: str
    """JSON Schema of the arguments, the same bytes every time, because they are part of a prompt-cache key."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one call."""

    output: str
    """Text for the model."""
    failed: bool
    """Whether the tool could not be run or could not do what was asked. A command that ran and exited with a code
    other than 0 has not failed in this sense."""


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str | None
    description: str | None


@overload
def tool(function: _Function, /) -> _Function: ...


@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[_Function], _Function]: ...


def tool(
    function: _Function | None = None, /, *, name: str | None = None, description: str | None = None
) -> _Function | Callable[[_Function], _Function]:
    """Marks a function or method as a tool, optionally under another name or description.

    The function itself stays as it is, so it can still be called, typed and tested like any other.
    """

    def mark(marked: _Function) -> _Function:
        setattr(marked, _MARK, _Mark(name, description))
        return marked

    return mark if function is None else mark(function)


class Tool:
    """A function together with its definition and the model that checks its arguments."""

    def __init__(self, function: Callable[..., Any], definition: ToolDefinition, arguments: type[BaseModel]) -> None:
        self.function = function
        self.definition = definition
        self._arguments = arguments

    @classmethod
    def from_function(
        cls, function: Callable[..., Any], *, name: str | None = None, description: str | None = None
    ) -> Tool:
        """Builds a tool from a function whose arguments all have types.

        Args:
            function: A sync or async function, or a bound method. Sync ones run in a thread.
            name: Overrides the name of the function.
            description: Overrides the first paragraph of its docstring.

        Raises:
            TypeError: An argument has no type, cannot be passed by name, or has a type without a JSON schema.
            ValueError: The name is not one that models may call.
        """
        mark: _Mark = getattr(function, _MARK, None) or _Mark(None, None)
        name = name or mark.name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(name):
            msg = f"tool name {name!r} must be 1 to 64 letters, digits, '_' or '-': pass name="
            raise ValueError(msg)
        if description is None:
            description = mark.description if mark.description is not None else summary(function.__doc__)
        arguments = _arguments_model(function, name)
        return cls(function, ToolDefinition(name, description, _parameters_json(arguments, name)), arguments)

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.definition.name

    def parse(self, arguments_json: str) -> dict[str, Any]:
        """Returns the checked arguments of a call, without those that were left to their defaults.

        Raises:
            ToolError: The text is not JSON or does not fit the schema; says which argument is wrong and why.
        """
        try:
            # Models send an empty text for calls without arguments.
            model = self._arguments.model_validate_json(arguments_json.strip() or "{}")
        except ValidationError as error:
            raise ToolError(_explain(self.name, error, list(self._arguments.model_fields))) from error
        return {field.removeprefix(_PREFIX): getattr(model, field) for field in model.model_fields_set}

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Calls the function with checked arguments and returns what it returns.

        Cancelling this cancels an async function. A sync one goes on in its thread and its result is dropped.
        """
        function = self.function
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
            return await function(**arguments)

        def in_thread() -> Any:
            try:
                return function(**arguments)
            except (StopIteration, SystemExit) as error:
                # A future refuses the first (whoever awaits it would wait for ever) and the second would end the loop.
                msg = f"{type(error).__name__}: {error}"
                raise RuntimeError(msg) from error

        result = await asyncio.to_thread(in_thread)
        return await result if inspect.isawaitable(result) else result


class ToolSet:
    """The tools of one agent: their definitions, and calls by name that never raise."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = (), *, max_output_bytes: int = DEFAULT_LIMIT):
        """Takes tools, or functions that become tools.

        Args:
            tools: In the order in which the model is told about them. Names must differ.
            max_output_bytes: Bound of each output in bytes of UTF-8; of a longer one the middle is left out.
        """
        if max_output_bytes < 2:
            msg = f"max_output_bytes must be at least 2, not {max_output_bytes}"
            raise ValueError(msg)
        self._max_output_bytes = max_output_bytes
        self._tools: dict[str, Tool] = {}
        for entry in tools:
            added = entry if isinstance(entry, Tool) else Tool.from_function(entry)
            if added.name in self._tools:
                msg = f"two tools are named {added.name!r}: rename one with name="
                raise ValueError(msg)
            self._tools[added.name] = added

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def definitions(self) -> list[ToolDefinition]:
        """Returns what to tell the model, in the order in which the tools were given."""
        return [each.definition for each in self]

    async def run(self, name: str, arguments_json: str) -> ToolResult:
        """Runs one call of the model and returns a text for it, whatever happens.

        Bad JSON, an unknown tool, wrong arguments and anything the tool raises become a failed result that says what
        to do. Calls may run at the same time.

        Cancelling this is safe: `asyncio.CancelledError` goes through; a sync tool ends in its own time, unheard.
        """
        try:
            called = self._tools.get(name)
            if called is None:
                names = ", ".join(self._tools) or "there are none"
                msg = f"there is no tool named {name!r}; the tools are: {names}"
                raise ToolError(msg)
            output, failed = (_as_text(await called.call(called.parse(arguments_json))), False)
        except ToolError as error:
            output, failed = str(error), True
        except (Exception, SystemExit) as error:
            output, failed = f"{name} raised {type(error).__name__}: {error}", True
        return ToolResult(bound_text(output, self._max_output_bytes), failed)


def _arguments_model(function: Callable[..., Any], name: str) -> type[BaseModel]:
    untyped = cast("Any", function)
    plain = untyped.func if isinstance(cast("object", function), functools.partial) else untyped
    target = plain if inspect.isroutine(plain) else type(plain).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
    except NameError as error:
        msg = f"tool {name!r}: cannot resolve its annotations ({error}): name types of its module only"
        raise TypeError(msg) from error
    described = argument_descriptions(function.__doc__)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            msg = f"tool {name!r}: argument {parameter.name!r} cannot be passed by name: models pass all by name"
            raise TypeError(msg)
        if parameter.name not in hints:
            msg = f"tool {name!r}: argument {parameter.name!r} needs a type"
            raise TypeError(msg)
        hint = hints[parameter.name]
        if parameter.name in described and not _has_description(hint):
            hint = Annotated[hint, Field(description=described[parameter.name])]
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[_PREFIX + parameter.name] = (hint, Field(default, alias=parameter.name))
    try:
        return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    except Exception as error:  # pydantic has no common base for what a type may be refused for
        msg = f"tool {name!r}: {error}"
        raise TypeError(msg) from error


def _has_description(hint: object) -> bool:
    if get_origin(hint) is not Annotated:
        return False
    return any(isinstance(extra, FieldInfo) and extra.description for extra in get_args(hint)[1:])


def _parameters_json(arguments: type[BaseModel], name: str) -> str:
    try:
        schema = arguments.model_json_schema()
    except Exception as error:  # as above
        msg = f"tool {name!r}: {error}"
        raise TypeError(msg) from error
    schema.setdefault("properties", {})
    return json.dumps(_tidy(schema), ensure_ascii=False, separators=(",", ":"))


def _tidy(schema: Any) -> Any:
    """Returns the schema without generated titles, keywords sorted; names of arguments stay in declared order.

    The order of arguments matters to a model, that of keywords does not: sorting them keeps the bytes the same when
    pydantic changes its mind.
    """
    if isinstance(schema, list):
        return [_tidy(each) for each in cast("Iterable[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for keyword, value in sorted(cast("dict[str, Any]", schema).items()):
        if keyword == "title":
            continue
        if keyword in ("properties", "$defs"):
            tidy[keyword] = {name: _tidy(each) for name, each in value.items()}
        else:
            # Defaults, examples and constants are values: what looks like a title in them is data.
            tidy[keyword] = value if keyword in ("default", "examples", "const", "enum") else _tidy(value)
    return tidy


def _explain(name: str, error: ValidationError, fields: list[str]) -> str:
    lines = [f"{name} was not run, its arguments are wrong:"]
    for problem in error.errors(include_url=False, include_context=False):
        kind, text = problem["type"], problem["msg"]
        path = ".".join(str(part) for part in problem["loc"])
        if kind == "json_invalid":
            lines.append(f"- not valid JSON: {text.removeprefix('Invalid JSON: ')}")
        elif not path:
            lines.append("- the arguments must be one JSON object")
        elif kind == "extra_forbidden" and len(problem["loc"]) == 1:
            known = ", ".join(field.removeprefix(_PREFIX) for field in fields) or "none"
            lines.append(f"- {path}: no such argument; the arguments are: {known}")
        elif kind == "missing":
            lines.append(f"- {path}: required, but missing")
        else:
            lines.append(f"- {path}: {text[:1].lower()}{text[1:]}, not {_short(problem['input'])}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = to_json(value, fallback=repr).decode()
    return text if len(text) <= 80 else text[:77] + "..."


def _as_text(value: Any) -> str:
    if value is None:
        return "done"
    return value if isinstance(value, str) else to_json(value, fallback=str).decode()
