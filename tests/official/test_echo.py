from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnwire.v1.json import from_json, to_json
from turnwire.v1.official.answer import Answer
from turnwire.v1.official.echo import ECHOED, echo
from turnwire.v1.response_pb2 import Response, ResponseCreate


def create_of(**fields: Any) -> ResponseCreate:
    return from_json(ResponseCreate, msgspec.json.encode({"model": "m", **fields}))


def answered(**fields: Any) -> dict[str, Any]:
    """Returns the public form of a response that was only announced."""
    answer = Answer(create_of(**fields))
    answer.announce(Response(id="resp_1", created_at=5, model="m-1"))
    decoded: dict[str, Any] = msgspec.json.decode(answer.json())
    return decoded


def test_what_was_not_asked_for_has_its_default() -> None:
    response = answered()

    assert response["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert (response["temperature"], response["top_p"], response["top_logprobs"]) == (1.0, 1.0, 0)
    assert (response["store"], response["background"], response["parallel_tool_calls"]) == (True, False, True)
    assert (response["tool_choice"], response["tools"], response["truncation"]) == ("auto", [], "disabled")
    assert (response["frequency_penalty"], response["presence_penalty"]) == (0.0, 0.0)
    assert response["service_tier"] == "default"
    assert response["metadata"] == {}
    for key in ("instructions", "max_tool_calls", "safety_identifier", "prompt_cache_key", "completed_at", "usage"):
        assert response[key] is None


def test_settings_come_back() -> None:
    response = answered(
        instructions="be brief",
        temperature=0,
        store=False,
        metadata={"a": "b"},
        reasoning={"effort": "low"},
        text={"format": {"type": "json_object"}},
        previous_response_id="resp_0",
    )

    assert (response["instructions"], response["temperature"], response["store"]) == ("be brief", 0, False)
    assert (response["metadata"], response["previous_response_id"]) == ({"a": "b"}, "resp_0")
    assert response["reasoning"] == {"effort": "low", "summary": None}
    assert response["text"] == {"format": {"type": "json_object"}, "verbosity": "medium"}
    assert (response["model"], response["id"], response["created_at"]) == ("m-1", "resp_1", 5)


def test_function_tools_come_back_with_all_their_keys() -> None:
    [tool] = answered(tools=[{"type": "function", "name": "f"}])["tools"]

    assert tool == {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}


def test_secrets_of_tools_do_not_come_back() -> None:
    secret = {"type": "mcp", "server_label": "s", "headers": {"X-Key": "hush"}, "authorization": "hush"}

    [tool] = answered(tools=[secret])["tools"]

    assert tool == {"type": "mcp", "server_label": "s"}


def test_keys_that_nobody_knows_come_back() -> None:
    response = answered(shade={"deep": [1, 2]}, client_metadata={"a": "b"})

    assert response["shade"] == {"deep": [1, 2]}
    assert "client_metadata" not in response


@pytest.mark.parametrize("key", ["id", "status", "object", "output", "created_at"])
def test_a_key_of_the_response_itself_cannot_be_set_by_the_request(key: str) -> None:
    assert answered(**{key: "mine"})[key] == answered()[key]


def test_json_text_of_the_client_cannot_break_a_line() -> None:
    body = b'{"model":"m","tools":[{"type":"function","name":"f","parameters":{\n"type":\r\n"object"}}],"x":[\n1]}'
    answer = Answer(from_json(ResponseCreate, body))
    answer.announce(Response(id="resp_1"))

    assert not {b"\n"[0], b"\r"[0]} & set(answer.json())
    assert msgspec.json.decode(answer.json())["tools"][0]["parameters"] == {"type": "object"}


def test_the_text_is_what_the_codec_writes() -> None:
    create = create_of(tools=[{"type": "custom", "name": "c"}], instructions="é\u2028", shade=1)
    answer = Answer(create)
    answer.announce(Response(id="resp_1", created_at=3, model="m"))

    assert msgspec.json.decode(answer.json()) == msgspec.json.decode(to_json(answer.response(), fill=True))


def test_everything_that_both_have_is_echoed() -> None:
    both = {field.name for field in ResponseCreate.DESCRIPTOR.fields} & {f.name for f in Response.DESCRIPTOR.fields}

    assert both - {*ECHOED, "metadata", "extra_json", "tools", "model"} == set()
    assert echo(ResponseCreate()) == Response()
