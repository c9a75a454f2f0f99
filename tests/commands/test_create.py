from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from click.testing import Result

from turnwire.client import RpcFailedError, SessionLost
from turnwire.client.commands.create import create, write_stream
from turnwire.client.testing import FakeServer, function_call, message
from turnwire.v1.item_pb2 import ContentPart, Item, Reasoning, ReasoningText

Invoke = Callable[..., Result]


def test_the_text_goes_to_standard_output(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("It rains in Oslo."))
    result = invoke(create, "--model", "m", "--instructions", "Be brief.", "--effort", "low", "How is the weather?")
    assert (result.exit_code, result.stdout) == (0, "It rains in Oslo.\n")
    (body,) = fake.creates
    assert (body.model, body.input.text, body.instructions) == ("m", "How is the weather?", "Be brief.")
    assert body.reasoning.effort == "low"


def test_a_dash_reads_the_prompt_from_standard_input(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("Yes."))
    assert invoke(create, "--model", "m", "-", stdin="Is this\nthe prompt?\n").exit_code == 0
    assert fake.creates[0].input.text == "Is this\nthe prompt?\n"


def test_json_is_the_whole_response_in_the_official_form(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("Hello."))
    result = invoke(create, "--model", "m", "--json", "Hi")
    response = json.loads(result.stdout)
    assert (response["object"], response["status"], response["error"]) == ("response", "completed", None)
    assert response["output"][0]["content"][0]["text"] == "Hello."


def test_calls_that_nobody_runs_are_noted_on_standard_error(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("Let me see"), function_call("look", {"where": "there"}, call_id="call_1"))
    result = invoke(create, "--model", "m", "Look.")
    assert (result.exit_code, result.stdout) == (0, "Let me see\n")
    assert 'called look({"where": "there"})' in result.stderr


def test_a_failed_response_ends_with_1_and_a_sentence(fake: FakeServer, invoke: Invoke) -> None:
    fake.fail("server_is_overloaded", "try later", message("Half"))
    result = invoke(create, "--model", "m", "Hi")
    assert (result.exit_code, result.stdout) == (1, "Half\n")
    assert result.stderr == "Error: the response failed: server_is_overloaded: try later\n"


async def test_an_answer_that_breaks_off_ends_its_line(fake: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    fake.hang(message("Half of it"))
    async with asyncio.timeout(5), fake.connect() as session:
        stream = await session.create(model="m", input="Hi")
        fake.drop(RpcFailedError("UNAVAILABLE", "gone"))
        with pytest.raises(SessionLost):
            await write_stream(stream, show_reasoning=False, show_text=True)
    assert capsys.readouterr().out == "Half of it\n"


def test_a_refused_prompt_ends_with_1_and_a_sentence(fake: FakeServer, invoke: Invoke) -> None:
    fake.reject("model_not_found", "there is no m")
    result = invoke(create, "--model", "m", "Hi")
    assert result.exit_code == 1
    assert result.stderr == "Error: model_not_found: there is no m\n"


def test_no_server_ends_with_3(invoke: Invoke) -> None:
    # Port 1 is not used by anybody.
    result = invoke(create, "--model", "m", "--address", "127.0.0.1:1", "Hi")
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: cannot reach 127.0.0.1:1: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--address", "ftp://x", "Hi"], "ftp: address"),
        ([""], "the prompt is empty"),
        ([], "Missing argument"),
        (["--max-output-tokens", "3", "Hi"], "--max-output-tokens"),
        (["--api-key-file", "no-such-file", "Hi"], "no-such-file: cannot be read"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], complaint: str, invoke: Invoke) -> None:
    result = invoke(create, *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_reasoning_is_shown_on_standard_error_only_where_asked_for(fake: FakeServer, invoke: Invoke) -> None:
    part = ContentPart(reasoning_text=ReasoningText(text="Hm."))
    for _ in range(2):
        fake.answer(Item(reasoning=Reasoning(content=[part])), message("Yes."))
    assert invoke(create, "--model", "m", "Well?").stdout == "Yes.\n"
    assert invoke(create, "--model", "m", "--show-reasoning", "Well?").stdout == "Yes.\n"


@pytest.mark.parametrize("arguments", [["-"], ["hi\udcff"], ["--instructions", "\udcff", "hi"]])
def test_what_is_not_utf8_text_is_wrong_usage(arguments: list[str], invoke: Invoke) -> None:
    # So Python hands on arguments that are not UTF-8: the byte ff as a surrogate.
    result = invoke(create, *arguments, stdin=b"hi\xff")
    assert result.exit_code == 2
    assert "not UTF-8 text" in result.stderr


def test_help_has_examples_and_exit_codes(invoke: Invoke) -> None:
    result = invoke(create, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert "3 cannot connect" in result.stdout
