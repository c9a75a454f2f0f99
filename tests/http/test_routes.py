"""Every path of the official API through a real door, with a real core behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnwire.server.runtime.threads import PARSE_BYTES
from turnwire.v1 import responses_service_pb2 as pb

from .conftest import Door, Doors, Stream


async def test_a_response_is_created_retrieved_and_deleted(door: Door) -> None:
    made = await door.answers("hello there")

    assert made["status"] == "completed"
    assert made["output"][0]["content"][0]["text"] == "hello there"
    status, found, _ = await door.ask("GET", f"/v1/responses/{made['id']}")
    assert (status, found) == (200, made)
    status, deleted, _ = await door.ask("DELETE", f"/v1/responses/{made['id']}")
    assert (status, deleted) == (200, {"id": made["id"], "object": "response", "deleted": True})
    assert await door.refusal("GET", f"/v1/responses/{made['id']}") == (404, "response_not_found", "response_id")


async def test_a_streamed_response_is_the_one_retrieved(door: Door) -> None:
    stream = await door.stream()
    await stream.until("created")
    door.say(await door.sampling(), "hello")
    door.engine.finish(0)
    completed = await stream.until("completed")

    assert await stream.next() is None
    assert [event["sequence_number"] for event in stream.seen] == list(range(len(stream.seen)))
    _, found, _ = await door.ask("GET", f"/v1/responses/{completed['response']['id']}")
    assert found == completed["response"]


async def test_a_response_continues_from_another(door: Door) -> None:
    first = await door.answers("one")
    second = await door.answers("two", passes=2, previous_response_id=first["id"])

    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


async def test_what_is_not_stored_is_not_found(door: Door) -> None:
    made = await door.answers(store=False)

    assert await door.refusal("GET", f"/v1/responses/{made['id']}") == (404, "response_not_found", "response_id")
    refusal = await door.refusal("POST", "/v1/responses", json=door.asking(previous_response_id=made["id"]))
    assert refusal == (400, "previous_response_not_found", "previous_response_id")


async def test_a_background_response_is_polled_followed_and_cancelled(door: Door) -> None:
    status, made, _ = await door.ask("POST", "/v1/responses", json=door.asking(background=True, stream=False))
    assert (status, made["background"], made["output"]) == (200, True, [])
    assert made["status"] in ("queued", "in_progress")
    sampling = await door.sampling()
    door.say(sampling, "one ")
    response = await door.client.get(f"{door.url}/v1/responses/{made['id']}?stream=true")
    following = Stream(response)
    assert (await following.until("output_text.delta"))["delta"] == "one "
    last = following.seen[-1]["sequence_number"]
    response.close()

    door.say(sampling, "two")
    again = Stream(await door.client.get(f"{door.url}/v1/responses/{made['id']}?stream=true&starting_after={last}"))
    delta = await again.until("output_text.delta")
    assert (delta["delta"], delta["sequence_number"], len(again.seen)) == ("two", last + 1, 1)
    assert delta["item_id"].startswith("msg_")

    status, ended, _ = await door.ask("POST", f"/v1/responses/{made['id']}/cancel")
    assert (status, ended["status"]) == (200, "cancelled")
    final = await again.until("incomplete")
    assert final["response"]["incomplete_details"] == {"reason": "cancelled"}
    assert await again.next() is None
    _, twice, _ = await door.ask("POST", f"/v1/responses/{made['id']}/cancel")
    assert twice == ended


async def test_a_streamed_background_response_outlives_its_stream(door: Door) -> None:
    stream = await door.stream(background=True)
    made = await stream.until("created")
    stream.response.close()

    sampling = await door.sampling()
    door.say(sampling, "still here")
    door.engine.finish(0)
    await door.emptied()

    assert not sampling.aborted
    _, found, _ = await door.ask("GET", f"/v1/responses/{made['response']['id']}")
    assert (found["status"], found["output"][0]["content"][0]["text"]) == ("completed", "still here")


async def test_only_background_responses_can_be_followed_and_cancelled(door: Door) -> None:
    made = await door.answers()

    path = f"/v1/responses/{made['id']}"
    assert (await door.refusal("GET", f"{path}?stream=true"))[:2] == (400, "invalid_request_error")
    assert (await door.refusal("POST", f"{path}/cancel"))[:2] == (400, "invalid_request_error")


async def test_input_items_come_in_pages(door: Door) -> None:
    texts = ["a", "b", "c"]
    made = await door.answers(input=[{"role": "user", "content": text} for text in texts])
    path = f"/v1/responses/{made['id']}/input_items"

    _, page, _ = await door.ask("GET", f"{path}?limit=2")
    _, rest, _ = await door.ask("GET", f"{path}?after={page['last_id']}")
    _, whole, _ = await door.ask("GET", f"{path}?order=asc")

    def said(listed: Any) -> list[str]:
        return [
            item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
            for item in listed["data"]
        ]

    assert (said(page), page["has_more"]) == (["c", "b"], True)
    assert (said(rest), rest["has_more"]) == (["a"], False)
    assert said(whole) == texts
    assert whole["first_id"] == rest["last_id"]
    assert (await door.refusal("GET", f"{path}?after=msg_none"))[:2] == (404, "item_not_found")
    assert (await door.refusal("GET", f"{path}?limit=0")) == (400, "invalid_value", "limit")


async def test_input_tokens_are_those_of_a_create(door: Door) -> None:
    status, counted, _ = await door.ask("POST", "/v1/responses/input_tokens", json=door.asking())
    made = await door.answers()

    assert status == 200
    assert counted == {"object": "response.input_tokens", "input_tokens": made["usage"]["input_tokens"]}


async def test_a_compaction_needs_a_model_that_exists(door: Door) -> None:
    assert (await door.refusal("POST", "/v1/responses/compact", json={"input": "x"}))[1:] == (
        "missing_required_parameter",
        "model",
    )
    refusal = await door.refusal("POST", "/v1/responses/compact", json={"model": "none", "input": "x"})
    assert refusal == (404, "model_not_found", "model")


async def test_models_are_listed(door: Door) -> None:
    _, listed, _ = await door.ask("GET", "/v1/models")
    _, model, _ = await door.ask("GET", "/v1/models/stepped")

    assert listed == {"object": "list", "data": [model]}
    assert model["id"] == "stepped"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "none", "input": "x"}, 404, "model_not_found", "model"),
        ({"input": "x"}, 400, "missing_required_parameter", "model"),
        ({"model": "stepped", "input": "x", "temperature": 3}, 400, "invalid_value", "temperature"),
        ({"model": "stepped", "input": "x", "conversation": "conv_1"}, 400, "unsupported_parameter", "conversation"),
        ({"model": "stepped", "input": "x", "prompt": {"id": "p"}}, 400, "unsupported_parameter", "prompt"),
        ({"model": "stepped", "input": "x", "hold": True}, 400, "unsupported_parameter", "hold"),
        (
            {"model": "stepped", "input": "x", "previous_response_id": "resp_none"},
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
        (
            {"model": "stepped", "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            400,
            "invalid_request_error",
            "input",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_is_refused_before_anything_is_answered(
    door: Door, body: dict[str, Any], status: int, code: str, param: str, stream: bool
) -> None:
    assert await door.refusal("POST", "/v1/responses", json={**body, "stream": stream}) == (status, code, param)


async def test_keys_are_asked_for(open_door: Doors) -> None:
    door = await open_door(keys="alice:0123456789abcdef0123\nbob:abcdef01230123456789")

    assert await door.refusal("GET", "/v1/models") == (401, "invalid_api_key", None)
    status, _, response = await door.ask("GET", "/v1/models", headers={"Authorization": "Bearer nobody-knows-this"})
    assert (status, response.headers["www-authenticate"]) == (401, "Bearer")
    alice, bob = ({"Authorization": f"Bearer {key}"} for key in ("0123456789abcdef0123", "abcdef01230123456789"))
    asking = asyncio.create_task(door.ask("POST", "/v1/responses", json=door.asking(), headers=alice))
    await door.sampling()
    door.engine.finish(0)
    _, made, _ = await asking
    path = f"/v1/responses/{made['id']}"
    assert (await door.ask("GET", path, headers=alice))[0] == 200
    assert (await door.refusal("GET", path, headers=bob))[1] == "response_not_found"


async def test_our_own_methods_are_served_too(door: Door) -> None:
    request = pb.ListModelsRequest().SerializeToString()
    response = await door.client.post(
        f"{door.url}/turnwire.v1.ResponsesService/ListModels",
        data=request,
        headers={"Content-Type": "application/proto"},
    )

    assert [model.id for model in pb.ListModelsResponse.FromString(await response.read()).models] == ["stepped"]


async def test_many_responses_run_at_the_same_time(door: Door) -> None:
    streams = await asyncio.gather(*(door.stream() for _ in range(20)))
    await door.sampling(20)
    for index in reversed(range(20)):
        door.say(door.engine.find(index), "x")
        door.engine.finish(index)

    finals = await asyncio.gather(*(stream.until("completed") for stream in streams))

    assert len({final["response"]["id"] for final in finals}) == 20
    assert [await stream.next() for stream in streams] == [None] * 20


async def test_a_big_body_is_read_whole(door: Door) -> None:
    text = "x" * (2 * PARSE_BYTES)

    response = await door.answers(input=text)

    _, page, _ = await door.ask("GET", f"/v1/responses/{response['id']}/input_items")
    assert page["data"][0]["content"][0]["text"] == text
    body = b'{"model":"stepped","input":"' + text.encode()
    headers = {"content-type": "application/json"}
    assert (await door.refusal("POST", "/v1/responses", data=body, headers=headers))[:2] == (400, "invalid_json")
