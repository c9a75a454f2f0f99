"""What the page about the client and the docstrings promise."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import pkgutil
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FunctionType

import pytest

import turnwire.client
from turnwire.client import ResponseStream, Session, ToolCall, connect, function_call_output, function_tool
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.testing import make_services, serving
from turnwire.v1.response_pb2 import Response

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")

SCENARIO = """
[model]
names = ["m", "scripted"]
[speed]
ttft_ms = 50
[[turn]]
when = "Fix the test"
text = "Let me see."
[[turn.call]]
name = "look"
arguments = { where = "there" }
call_id = "call_1"
[[turn]]
text = "Done."
"""


def example(heading: str) -> str:
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL))


async def run(code: str, **names: object) -> dict[str, object]:
    """Runs a snippet that awaits, and returns its names."""
    compiled = compile(code, "docs/client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = FunctionType(compiled, names)()
    if inspect.isawaitable(result):
        await result
    return names


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    services = make_services([ScriptedEngine(load_scenario(SCENARIO))])
    async with serving(services) as address, connect(address) as session:
        yield session


async def test_the_example_of_a_tool_loop_runs_as_it_stands(session: Session) -> None:
    async def look(call: ToolCall) -> str:
        return f"{call.call_id} looked"

    given = {"ResponseStream": ResponseStream, "ToolCall": ToolCall, "function_call_output": function_call_output}
    tools = [function_tool("look", parameters={"type": "object"})]
    names = await run(example("A tool loop"), session=session, tools=tools, run=look, asyncio=asyncio, **given)
    response = names["response"]
    assert isinstance(response, Response)
    kinds = [item.WhichOneof("kind") for item in response.output]
    assert kinds == ["message", "function_call", "function_call_output", "message"]


async def test_the_example_with_lanes_runs_as_it_stands(session: Session) -> None:
    names = await run(example("Lanes, forks, streams"), session=session)
    for name in ("second", "other"):
        stream = names[name]
        assert isinstance(stream, ResponseStream)
        assert (await stream.get_final_response()).output


def public_coroutines() -> Iterator[tuple[str, str]]:
    """Yields the name of every public async function and method with its docstring."""
    for found in pkgutil.walk_packages(turnwire.client.__path__, "turnwire.client."):
        if ".demo.project" in found.name:
            continue
        module = importlib.import_module(found.name)
        classes = [one for name, one in inspect.getmembers(module, inspect.isclass) if not name.startswith("_")]
        for owner in [module, *classes]:
            for name, function in inspect.getmembers(owner, inspect.isfunction):
                unwrapped = inspect.unwrap(function)
                asynchronous = inspect.iscoroutinefunction(unwrapped) or inspect.isasyncgenfunction(unwrapped)
                if asynchronous and not name.startswith("_") and function.__module__ == module.__name__:
                    yield f"{function.__module__}.{function.__qualname__}", inspect.getdoc(function) or ""


def test_every_async_method_says_whether_it_may_be_cancelled() -> None:
    silent = [name for name, text in public_coroutines() if not re.search("[Cc]ancelling", text)]
    assert not silent
