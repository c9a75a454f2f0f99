from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from turnwire.client.agent.tools import Tool, ToolError, ToolResult, ToolSet, tool


@dataclass
class Point:
    x: int
    y: int = 0


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Tells the weather
    of a city.

    More words that are for people.

    Args:
        city: Name of the city,
            with the country if it is
            ambiguous: 'Paris, Texas'.
        days (int): How many days.

    Returns:
        city: not an argument.
    """
    return f"{city} {days} {unit}"


def parameters(function: Any) -> dict[str, Any]:
    return json.loads(Tool.from_function(function).definition.parameters_json)  # type: ignore[no-any-return]


class TestDefinitions:
    def test_the_first_paragraph_of_the_docstring_describes_the_tool(self) -> None:
        definition = Tool.from_function(weather).definition
        assert (definition.name, definition.description) == ("weather", "Tells the weather of a city.")

    def test_the_schema_is_the_same_bytes_every_time(self) -> None:
        expected = (
            '{"additionalProperties":false,"properties":{"city":{"description":"Name of the city, with the country if '
            'it is ambiguous: \'Paris, Texas\'.","type":"string"},"days":{"default":1,"description":"How many days.",'
            '"type":"integer"},"unit":{"default":"C","enum":["C","F"],"type":"string"}},"required":["city"],'
            '"type":"object"}'
        )
        assert Tool.from_function(weather).definition.parameters_json == expected
        assert ToolSet([weather]).definitions() == ToolSet([weather]).definitions()

    def test_arguments_keep_their_declared_order(self) -> None:
        def swap(z: int, a: int, m: int) -> None: ...

        assert list(parameters(swap)["properties"]) == ["z", "a", "m"]

    def test_an_annotated_description_wins_and_constraints_stay(self) -> None:
        def pick(
            count: Annotated[int, Field(description="How many.", ge=1, le=9)] = 3, size: Annotated[int, Field(gt=0)] = 1
        ) -> None:
            """Picks.

            Args:
                count: Overruled.
                size: From the docstring.
            """

        assert parameters(pick)["properties"] == {
            "count": {"default": 3, "description": "How many.", "maximum": 9, "minimum": 1, "type": "integer"},
            "size": {"default": 1, "description": "From the docstring.", "exclusiveMinimum": 0, "type": "integer"},
        }

    def test_an_argument_named_title_or_like_a_method_of_pydantic_is_an_argument(self) -> None:
        def odd(title: str, json: str, copy: bool, schema: str, model_dump: str) -> None: ...

        assert list(parameters(odd)["properties"]) == ["title", "json", "copy", "schema", "model_dump"]

    def test_a_default_that_looks_like_a_schema_is_left_alone(self) -> None:
        def save(meta: dict[str, str] = {"title": "x", "b": "1", "a": "2"}) -> None: ...  # noqa: B006

        assert parameters(save)["properties"]["meta"]["default"] == {"title": "x", "b": "1", "a": "2"}

    def test_a_function_without_arguments_takes_an_empty_object(self) -> None:
        def ping() -> None: ...

        assert parameters(ping) == {"additionalProperties": False, "properties": {}, "type": "object"}

    def test_tool_gives_another_name_and_leaves_the_function_as_it_is(self) -> None:
        @tool(name="get-weather", description="Short.")
        def renamed(city: str) -> str:
            return city

        @tool
        def plain(city: str) -> str:
            """Plain."""
            return city

        assert renamed("Oslo") == "Oslo"
        assert [(each.name, each.description) for each in ToolSet([renamed, plain]).definitions()] == [
            ("get-weather", "Short."),
            ("plain", "Plain."),
        ]

    def test_methods_partials_and_callable_objects_are_tools_too(self) -> None:
        class Shop:
            @tool(name="sell")
            def method(self, item: str) -> str:
                return item

            def __call__(self, item: str) -> str:
                return item

        assert list(parameters(Shop().method)["properties"]) == ["item"]
        assert Tool.from_function(Shop().method).name == "sell"
        assert Tool.from_function(Shop(), name="shop").name == "shop"
        partial = Tool.from_function(functools.partial(weather, days=2), name="two_days")
        assert json.loads(partial.definition.parameters_json)["required"] == ["city"]

    @pytest.mark.parametrize("name", ["<lambda>", "two words", "x" * 65, "größe"])
    def test_a_name_that_models_cannot_call_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="must be 1 to 64 letters, digits"):
            Tool.from_function(weather, name=name)

    def test_arguments_that_models_cannot_pass_are_refused(self) -> None:
        def untyped(a): ...  # type: ignore[no-untyped-def] # pyright: ignore

        def many(*names: str) -> None: ...

        def positional(a: int, /) -> None: ...

        def no_schema(lock: threading.Thread) -> None: ...

        refused: list[tuple[Any, str]] = [
            (untyped, "argument 'a' needs a type"),
            (many, "argument 'names' cannot be passed by name"),
            (positional, "argument 'a' cannot be passed by name"),
            (no_schema, "tool 'no_schema'"),
        ]
        for function, reason in refused:
            with pytest.raises(TypeError, match=reason):
                Tool.from_function(function)

    def test_two_tools_of_one_name_are_refused(self) -> None:
        with pytest.raises(ValueError, match="two tools are named 'weather'"):
            ToolSet([weather, weather])


class TestRun:
    async def test_defaults_are_left_to_the_function(self) -> None:
        assert await ToolSet([weather]).run("weather", '{"city": "Oslo"}') == ToolResult("Oslo 1 C", failed=False)

    async def test_an_empty_text_means_no_arguments(self) -> None:
        def ping() -> str:
            return "pong"

        assert await ToolSet([ping]).run("ping", "") == ToolResult("pong", failed=False)

    async def test_async_functions_run_in_the_loop_and_sync_ones_in_a_thread(self) -> None:
        def blocking() -> bool:
            return threading.current_thread() is threading.main_thread()

        async def waiting() -> bool:
            return threading.current_thread() is threading.main_thread()

        tools = ToolSet([blocking, waiting])
        assert (await tools.run("blocking", "{}")).output == "false"
        assert (await tools.run("waiting", "{}")).output == "true"

    async def test_arguments_arrive_as_their_types(self) -> None:
        seen: list[object] = []

        def draw(points: list[Point], label: str | None = None) -> None:
            seen.extend([*points, label])

        # Only types of the module can be named in annotations of a local function.
        result = await ToolSet([draw]).run("draw", '{"points": [{"x": "1"}, {"x": 2, "y": 3}], "label": null}')
        assert result == ToolResult("done", failed=False)
        assert seen == [Point(1, 0), Point(2, 3), None]

    async def test_what_is_no_text_is_returned_as_json(self) -> None:
        def data() -> dict[str, object]:
            return {"point": Point(1), "names": ("a", "b")}

        assert (await ToolSet([data]).run("data", "{}")).output == '{"point":{"x":1,"y":0},"names":["a","b"]}'

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            ('{"city": ', ["not valid JSON", "line 1"]),
            ('{"city": "\\ud800"}', ["not valid JSON"]),
            ("[1]", ["the arguments must be one JSON object"]),
            ("null", ["the arguments must be one JSON object"]),
            ("{}", ["- city: required, but missing"]),
            ('{"city": 7}', ["- city: input should be a valid string, not 7"]),
            ('{"city": "x", "days": "soon"}', ["- days: ", '"soon"']),
            ('{"city": "x", "unit": "K"}', ["- unit: input should be 'C' or 'F', not \"K\""]),
            ('{"city": "x", "town": "y"}', ["- town: no such argument; the arguments are: city, days, unit"]),
            ('{"city": 1, "days": []}', ["- city: ", "- days: "]),
        ],
    )
    async def test_wrong_arguments_name_the_argument(self, arguments: str, parts: list[str]) -> None:
        result = await ToolSet([weather]).run("weather", arguments)
        assert result.failed
        assert all(part in result.output for part in parts), result.output
        assert "argument_" not in result.output

    async def test_a_wrong_value_deep_inside_is_named_by_its_path(self) -> None:
        def draw(points: list[Point]) -> None: ...

        result = await ToolSet([draw]).run("draw", '{"points": [{"x": 1}, {"x": null}]}')
        assert "- points.1.x: " in result.output

    async def test_an_unknown_tool_is_answered_with_those_that_exist(self) -> None:
        result = await ToolSet([weather]).run("wether", "{}")
        assert result == ToolResult("there is no tool named 'wether'; the tools are: weather", failed=True)
        assert "there are none" in (await ToolSet().run("x", "{}")).output

    @pytest.mark.parametrize("error", [KeyError("k"), SystemExit(3), StopIteration(), StopAsyncIteration()])
    @pytest.mark.parametrize("sync", [True, False])
    async def test_whatever_a_tool_raises_becomes_a_text(self, error: BaseException, sync: bool) -> None:
        def broken() -> None:
            raise error

        async def async_broken() -> None:
            raise error

        async with asyncio.timeout(5):
            result = await ToolSet([Tool.from_function(broken if sync else async_broken, name="broken")]).run(
                "broken", "{}"
            )
        assert result.failed
        assert "broken raised" in result.output

    async def test_a_tool_error_is_passed_on_word_for_word(self) -> None:
        async def picky() -> None:
            msg = "say please"
            raise ToolError(msg)

        assert await ToolSet([picky]).run("picky", "{}") == ToolResult("say please", failed=True)

    async def test_cancellation_goes_through_and_reaches_the_tool(self) -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        task = asyncio.create_task(ToolSet([wait]).run("wait", "{}"))
        async with asyncio.timeout(5):
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert cancelled.is_set()

    async def test_a_long_output_loses_its_middle(self) -> None:
        def long() -> str:
            return "a" * 500 + "b" * 500

        output = (await ToolSet([long], max_output_bytes=100).run("long", "{}")).output
        assert output == "a" * 50 + "\n[... 900 bytes left out ...]\n" + "b" * 50

    async def test_an_error_text_is_bounded_as_well(self) -> None:
        def long() -> str:
            raise ValueError("x" * 10_000)

        assert len((await ToolSet([long], max_output_bytes=100).run("long", "{}")).output) < 200

    async def test_the_output_is_always_valid_unicode(self) -> None:
        def name() -> str:
            return "caf\udce9"

        assert (await ToolSet([name]).run("name", "{}")).output == "caf?"


def test_without_pydantic_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['pydantic'] = None\n"
        "try:\n    import turnwire.client.agent.tools\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert "pip install 'turnwire[agent]'" in done.stdout
