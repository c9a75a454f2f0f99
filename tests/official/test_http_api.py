"""Paths, methods, bodies and errors of the official HTTP API, over a caller that answers what it is told."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import ERRORS, RequestError, make_error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.official.http import HttpResponse
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent

from .conftest import Asker, FakeBackend, failure

CREATE = {"model": "m", "input": "hi"}


def event_of(**fields: Any) -> ServerEvent:
    return ServerEvent(**fields)


def item_of(**fields: Any) -> Item:
    return Item(**fields)


def created(response_id: str = "resp_1", **more: Any) -> ServerEvent:
    return event_of(created={"response": {"id": response_id, "model": "m", **more}})


def done(sequence: int = 1, reason: str = "COMPLETED", **more: Any) -> ServerEvent:
    return event_of(sequence_number=sequence, done={"reason": DoneReason.Value(f"DONE_REASON_{reason}"), **more})


def decoded(answer: HttpResponse) -> Any:
    assert isinstance(answer.body, bytes)
    return msgspec.json.decode(answer.body)


def stream_of(answer: HttpResponse) -> AsyncGenerator[bytes, None]:
    assert not isinstance(answer.body, bytes)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return answer.body


async def events_of(answer: HttpResponse) -> list[dict[str, Any]]:
    """Reads an event stream to its end, and checks its form."""
    text = b"".join([piece async for piece in stream_of(answer)]).decode()
    *frames, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    events: list[dict[str, Any]] = []
    for frame in frames:
        match = re.fullmatch(r"event: ([a-z_.]+)\ndata: (.*)", frame)
        assert match is not None
        events.append(msgspec.json.decode(match[2]))
        assert events[-1]["type"] == match[1]
    return events


async def test_a_create_is_answered_whole(asker: Asker) -> None:
    output = [item_of(message={"id": "msg_1"})]
    asker.caller.batches = [[created()], [done(output=output, usage={"input_tokens": 3})]]

    answer = await asker.ask("POST", "/v1/responses", {**CREATE, "shade": 1}, traceparent="00-1")

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    response = decoded(answer)
    assert (response["id"], response["status"], response["shade"]) == ("resp_1", "completed", 1)
    assert [item["id"] for item in response["output"]] == ["msg_1"]
    [(_, (create, context))] = asker.caller.asked
    assert (create.model, create.verbosity) == ("m", Verbosity.VERBOSITY_DONE)
    assert context.traceparent == "00-1"
    assert asker.caller.closed == 1


async def test_items_too_many_for_one_event_are_taken_from_the_events_before_it(asker: Asker) -> None:
    item = item_of(message={"id": "msg_1"})
    asker.caller.batches = [[created(), event_of(output_item_done={"output_index": 0, "item": item}), done()]]

    answer = await asker.ask("POST", "/v1/responses", CREATE)

    assert [item["id"] for item in decoded(answer)["output"]] == ["msg_1"]


async def test_a_create_is_answered_as_a_stream(asker: Asker) -> None:
    asker.caller.batches = [[created()], [event_of(sequence_number=1, in_progress={})], [done(2)]]

    events = await events_of(await asker.ask("POST", "/v1/responses", {**CREATE, "stream": True}))

    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert asker.caller.asked[0][1][0].verbosity == Verbosity.VERBOSITY_FULL
    assert asker.caller.closed == 1


async def test_what_waits_behind_the_end_is_not_sent(asker: Asker) -> None:
    asker.caller.batches = [[created()], [done(1), event_of(sequence_number=2, in_progress={})], [done(3)]]

    events = await events_of(await asker.ask("POST", "/v1/responses", {**CREATE, "stream": True}))

    assert [event["type"] for event in events] == ["response.created", "response.completed"]


async def test_closing_a_stream_at_any_point_lets_go_of_its_response(asker: Asker) -> None:
    for taken in range(3):
        asker.caller.batches = [[created()], [event_of(sequence_number=1, in_progress={})], [done(2)]]
        stream = stream_of(await asker.ask("POST", "/v1/responses", {**CREATE, "stream": True}))
        for _ in range(taken):
            await anext(stream)
        await stream.aclose()
        assert asker.caller.closed == taken + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_create_is_an_error_before_anything(asker: Asker, stream: bool) -> None:
    asker.caller.ends = RequestError(make_error("rate_limit_exceeded", "slow down", retry_after=2))

    answer = await asker.ask("POST", "/v1/responses", {**CREATE, "stream": stream})

    assert (answer.status, decoded(answer)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer.headers["retry-after"] == "2"
    assert asker.caller.closed == 1


async def test_a_response_that_fails_is_an_error_where_it_is_wanted_whole(asker: Asker) -> None:
    asker.caller.batches = [[created()], [done(reason="FAILED", error=failure("server_is_overloaded"))]]

    assert await asker.refusal("POST", "/v1/responses", CREATE) == (503, "server_is_overloaded", None)


async def test_a_response_that_fails_ends_its_stream_with_its_own_event(asker: Asker) -> None:
    asker.caller.batches = [[created()], [done(reason="FAILED", error=failure("server_is_overloaded"))]]

    [_, last] = await events_of(await asker.ask("POST", "/v1/responses", {**CREATE, "stream": True}))

    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_is_overloaded", "message": "it failed"}


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (RequestError(make_error("session_lost", "gone")), "session_lost"),
        (ZeroDivisionError(), "server_error"),
        (None, "server_error"),
    ],
)
async def test_a_server_that_is_lost_amid_a_stream_is_an_error_event(
    asker: Asker, ends: Exception | None, code: str
) -> None:
    asker.caller.batches = [[created()]]
    asker.caller.ends = ends

    [_, last] = await events_of(await asker.ask("POST", "/v1/responses", {**CREATE, "stream": True}))

    assert (last["type"], last["sequence_number"]) == ("error", 1)
    assert (last["error"]["code"], last["status"]) == (code, ERRORS[code].http_status)


async def test_a_background_response_is_told_of_as_soon_as_it_exists(asker: Asker) -> None:
    asker.caller.batches = [[created(status="RESPONSE_STATUS_QUEUED")], [done()]]

    answer = await asker.ask("POST", "/v1/responses", {**CREATE, "background": True})

    response = decoded(answer)
    assert (response["status"], response["background"]) == ("queued", True)
    assert asker.caller.asked[0][1][0].echo


async def test_a_message_of_a_websocket_is_taken_over_http(asker: Asker) -> None:
    asker.caller.batches = [[created(), done()]]

    response = decoded(
        await asker.ask("POST", "/v1/responses", {"type": "response.create", "stream_id": "a", "event_id": 1, **CREATE})
    )

    assert response.keys() & {"type", "stream_id", "event_id"} == set()


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 400, "invalid_json", None),
        (b"{", 400, "invalid_json", None),
        (b"[]", 400, "invalid_json", None),
        (b'"x"', 400, "invalid_json", None),
        (b"null", 400, "invalid_json", None),
        (b'{"model":"\xff"}', 400, "invalid_json", None),
        (b"[" * 3000, 400, "invalid_json", None),
        ({"model": 1}, 400, "invalid_type", "model"),
        ({"input": [{"type": "message", "role": "robot"}]}, 400, "invalid_value", "input[0].role"),
        ({"temperature": "hot"}, 400, "invalid_type", "temperature"),
        ({"hold": True}, 400, "unsupported_parameter", "hold"),
        ({"type": "response.append"}, 400, "invalid_value", "type"),
        (b" " * 5000, 413, "request_too_large", None),
    ],
)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"])
async def test_a_bad_body_is_refused_by_name(
    asker: Asker, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    assert await asker.refusal("POST", path, body) == (status, code, param)
    assert asker.caller.asked == []


@pytest.mark.parametrize("kind", ["application/json", "APPLICATION/JSON; charset=utf-8"])
async def test_json_is_taken_by_any_of_its_names(asker: Asker, kind: str) -> None:
    answer = await asker.ask("POST", "/v1/responses/input_tokens", CREATE, content_type=kind)

    assert decoded(answer) == {"object": "response.input_tokens", "input_tokens": 7}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/proto", ""])
async def test_another_content_type_or_none_is_refused(asker: Asker, kind: str) -> None:
    refusal = await asker.refusal("POST", "/v1/responses", CREATE, content_type=kind)

    assert refusal == (415, "unsupported_content_type", None)


async def test_a_response_is_retrieved(asker: Asker) -> None:
    asker.caller.response = Response(id="resp_1", model="m", created_at=1)

    response = decoded(await asker.ask("GET", "/v1/responses/resp_1"))

    assert (response["id"], response["object"], response["output"]) == ("resp_1", "response", [])
    assert asker.caller.asked == [("get", "resp_1")]


async def test_a_response_is_deleted(asker: Asker) -> None:
    asker.caller.response = Response()

    answer = await asker.ask("DELETE", "/v1/responses/resp_1")

    assert decoded(answer) == {"id": "resp_1", "object": "response", "deleted": True}


async def test_a_response_is_cancelled(asker: Asker) -> None:
    asker.caller.response = Response(id="resp_1")

    assert decoded(await asker.ask("POST", "/v1/responses/resp_1/cancel"))["id"] == "resp_1"
    assert asker.caller.asked == [("cancel", "resp_1")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses/resp_x"),
        ("DELETE", "/v1/responses/resp_x"),
        ("POST", "/v1/responses/resp_x/cancel"),
    ],
)
async def test_an_unknown_response_is_not_found(asker: Asker, method: str, path: str) -> None:
    assert await asker.refusal(method, path) == (404, "response_not_found", "response_id")


async def test_a_background_response_is_followed_from_a_number_on(asker: Asker) -> None:
    added = event_of(sequence_number=2, output_item_added={"output_index": 0, "item": {"message": {"id": "msg_1"}}})
    delta = event_of(sequence_number=4, output_text_delta={"delta": "x"})
    asker.caller.batches = [[created(), added], [delta, done(5)]]

    answer = await asker.ask("GET", "/v1/responses/resp_1", query={"stream": ["true"], "starting_after": ["3"]})
    events = await events_of(answer)

    assert asker.caller.asked == [("follow", ("resp_1", 3))]
    assert [event["sequence_number"] for event in events] == [4, 5]
    assert events[0]["item_id"] == "msg_1"


@pytest.mark.parametrize("seen", [0, 2, 3])
async def test_what_a_follower_has_seen_last_is_not_said_again(asker: Asker, seen: int) -> None:
    added = event_of(sequence_number=2, output_item_added={"output_index": 0, "item": {"message": {"id": "msg_1"}}})
    deltas = [event_of(sequence_number=number, output_text_delta={"delta": "x"}) for number in (3, 4)]
    asker.caller.batches = [[created(), added, *deltas, done(5)]]

    query = {"stream": ["true"], "starting_after": [str(seen)]}
    events = await events_of(await asker.ask("GET", "/v1/responses/resp_1", query=query))

    assert [event["sequence_number"] for event in events] == [number for number in (2, 3, 4, 5) if number > seen]


@pytest.mark.parametrize("padded", [None, "true", "false"])
async def test_a_followed_stream_is_padded_where_it_is_asked_for(asker: Asker, padded: str | None) -> None:
    asker.caller.batches = [[created(), event_of(sequence_number=1, output_text_delta={"delta": "x"}), done(2)]]
    query = {"stream": ["true"], **({"include_obfuscation": [padded]} if padded else {})}

    events = await events_of(await asker.ask("GET", "/v1/responses/resp_1", query=query))

    assert ("obfuscation" in events[1]) == (padded == "true")


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("/v1/responses/r", {"stream": ["maybe"]}, "invalid_value"),
        ("/v1/responses/r", {"starting_after": ["x"]}, "invalid_type"),
        ("/v1/responses/r", {"starting_after": ["-1"]}, "invalid_value"),
        ("/v1/responses/r", {"starting_after": ["9" * 5000]}, "invalid_value"),
        ("/v1/responses/r", {"include_obfuscation": [""]}, "invalid_value"),
        ("/v1/responses/r/input_items", {"limit": ["0"]}, "invalid_value"),
        ("/v1/responses/r/input_items", {"limit": ["101"]}, "invalid_value"),
        ("/v1/responses/r/input_items", {"limit": ["ten"]}, "invalid_type"),
        ("/v1/responses/r/input_items", {"limit": ["²"]}, "invalid_type"),
        ("/v1/responses/r/input_items", {"order": ["up"]}, "invalid_value"),
    ],
)
async def test_a_bad_query_value_is_refused_by_name(
    asker: Asker, path: str, query: dict[str, list[str]], code: str
) -> None:
    assert await asker.refusal("GET", path, query=query) == (400, code, next(iter(query)))


async def test_input_items_come_as_a_list(asker: Asker) -> None:
    items = [item_of(message={"id": "msg_2"}), item_of(opaque={"type": "x", "json": '{"type":"x",\n"id":"x_1"}'})]
    asker.caller.page = pb.ListInputItemsResponse(items=items, has_more=True)

    page = decoded(await asker.ask("GET", "/v1/responses/resp_1/input_items", query={"limit": ["2"]}))

    assert (page["object"], page["first_id"], page["last_id"], page["has_more"]) == ("list", "msg_2", "x_1", True)
    assert [item["type"] for item in page["data"]] == ["message", "x"]
    [(_, query)] = asker.caller.asked
    assert (query.response_id, query.limit, query.ascending, query.after) == ("resp_1", 2, False, "")


async def test_an_empty_list_has_no_first_and_last(asker: Asker) -> None:
    query = {"order": ["asc"], "after": ["msg_1"]}

    page = decoded(await asker.ask("GET", "/v1/responses/resp_1/input_items", query=query))

    assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    [(_, asked)] = asker.caller.asked
    assert (asked.ascending, asked.after, asked.HasField("limit")) == (True, "msg_1", False)


async def test_a_compaction_needs_a_model(asker: Asker) -> None:
    refusal = await asker.refusal("POST", "/v1/responses/compact", {"input": "hi"})

    assert refusal == (400, "missing_required_parameter", "model")
    compaction = decoded(await asker.ask("POST", "/v1/responses/compact", CREATE))
    assert (compaction["object"], compaction["id"]) == ("response.compaction", "resp_c")


async def test_models_are_listed_and_found_by_any_of_their_names(asker: Asker) -> None:
    asker.caller.models = [pb.Model(id="org/m", owned_by="me", aliases=["latest"], created=9)]

    listed = decoded(await asker.ask("GET", "/v1/models"))

    assert listed["object"] == "list"
    [model] = listed["data"]
    assert (model["id"], model["object"], model["owned_by"], model["created"]) == ("org/m", "model", "me", 9)
    assert decoded(await asker.ask("GET", "/v1/models/org/m")) == model
    assert decoded(await asker.ask("GET", "/v1/models/latest")) == model
    assert await asker.refusal("GET", "/v1/models/none") == (404, "model_not_found", "model")


@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/conversations/conv_1/items"])
async def test_conversations_are_not_supported_and_say_so(asker: Asker, path: str) -> None:
    assert await asker.refusal("POST", path, {}) == (400, "unsupported_parameter", "conversation")


@pytest.mark.parametrize("path", ["/", "/v1", "/v2/responses", "/responses", "/v1/responses/a/b", "/v1/chat"])
async def test_an_unknown_path_is_told_what_exists(asker: Asker, path: str) -> None:
    answer = await asker.ask("POST", path, CREATE)

    error = decoded(answer)["error"]
    assert (answer.status, error["code"]) == (404, "unknown_url")
    assert "/v1/responses/input_tokens" in error["message"]
    assert ("base URL" in error["message"]) == (not path.startswith("/v1"))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/responses", "POST"),
        ("HEAD", "/v1/responses", "POST"),
        ("OPTIONS", "/v1/responses", "POST"),
        ("PUT", "/v1/responses/resp_1", "DELETE, GET, HEAD"),
        ("GET", "/v1/responses/compact", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(asker: Asker, method: str, path: str, allowed: str) -> None:
    answer = await asker.ask(method, path)

    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    if method != "HEAD":
        assert decoded(answer)["error"]["code"] == "method_not_supported"


async def test_head_is_get_without_the_body(asker: Asker) -> None:
    got, head = await asker.ask("GET", "/v1/models"), await asker.ask("HEAD", "/v1/models")

    assert head.body == b""
    assert head.headers == {**got.headers, "content-length": str(len(got.whole))}


async def test_head_never_starts_a_stream(asker: Asker) -> None:
    asker.caller.response = Response(id="resp_1")

    assert (await asker.ask("HEAD", "/v1/responses/resp_1", query={"stream": ["true"]})).body == b""
    assert asker.caller.asked == [("get", "resp_1")]


async def test_every_answer_names_its_request(asker: Asker) -> None:
    asker.caller.batches = [[created(), done()]]
    streamed = await asker.ask("POST", "/v1/responses", {**CREATE, "stream": True})

    assert streamed.headers["x-request-id"] == "req_1"
    assert (await asker.ask("GET", "/v1/models")).headers["x-request-id"] == "req_1"
    assert (await asker.ask("GET", "/nowhere")).headers["x-request-id"] == "req_1"
    await stream_of(streamed).aclose()


async def test_a_wrong_key_is_refused(asker: Asker) -> None:
    backend: FakeBackend = asker.backend
    backend.key = "right"

    assert await asker.refusal("GET", "/v1/models") == (401, "invalid_api_key", None)
    assert await asker.refusal("POST", "/v1/responses", CREATE, authorization="Bearer wrong") == (
        401,
        "invalid_api_key",
        None,
    )
    assert (await asker.ask("GET", "/v1/models", authorization="Bearer right")).status == 200


async def test_a_fault_of_our_own_is_an_error_like_any_other(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(asker.caller, "list_models", broken)

    assert await asker.refusal("GET", "/v1/models") == (500, "server_error", None)
    assert "a request failed" in caplog.text


@pytest.mark.parametrize("code", sorted(ERRORS))
async def test_every_error_of_the_table_keeps_its_status_code_and_parameter(asker: Asker, code: str) -> None:
    asker.caller.ends = RequestError(make_error(code, "it failed", param="input"))

    assert await asker.refusal("POST", "/v1/responses", CREATE) == (ERRORS[code].http_status, code, "input")


SERVICE = "/turnwire.v1.ResponsesService/"


async def test_our_own_unary_methods_go_over_http(asker: Asker) -> None:
    asker.caller.response = Response(id="resp_1")
    asker.caller.batches = [[created(), done(output=[item_of(message={"id": "msg_1"})])]]
    asker.caller.models = [pb.Model(id="m")]

    async def ask(name: str, request: Any, answer: Any) -> Any:
        got = await asker.ask("POST", SERVICE + name, request.SerializeToString(), content_type="application/proto")
        assert (got.status, got.headers["content-type"]) == (200, "application/proto")
        return answer.FromString(got.whole)

    create = ResponseCreate(model="m")
    made = await ask("CreateResponse", pb.CreateResponseRequest(create=create), pb.CreateResponseResponse)
    assert [item.message.id for item in made.response.output] == ["msg_1"]
    found = await ask("GetResponse", pb.GetResponseRequest(response_id="resp_1"), pb.GetResponseResponse)
    assert found.response.id == "resp_1"
    there = pb.GetResponseRequest(response_id="resp_1", session_id="sess_1")
    assert (await ask("GetResponse", there, pb.GetResponseResponse)).response.id == "resp_1"
    assert asker.caller.asked[-1] == ("get", ("resp_1", "sess_1"))
    await ask("DeleteResponse", pb.DeleteResponseRequest(response_id="resp_1"), pb.DeleteResponseResponse)
    ended = await ask("CancelResponse", pb.CancelResponseRequest(response_id="resp_1"), pb.CancelResponseResponse)
    assert ended.response.id == "resp_1"
    await ask("ListInputItems", pb.ListInputItemsRequest(response_id="resp_1"), pb.ListInputItemsResponse)
    count = await ask("CountInputTokens", pb.CountInputTokensRequest(create=create), pb.CountInputTokensResponse)
    assert count.input_tokens == 7
    compaction = await ask("CompactResponse", pb.CompactResponseRequest(create=create), pb.CompactResponseResponse)
    assert compaction.id == "resp_c"
    models = await ask("ListModels", pb.ListModelsRequest(), pb.ListModelsResponse)
    assert [model.id for model in models.models] == ["m"]
    able = await ask("GetCapabilities", pb.GetCapabilitiesRequest(), pb.GetCapabilitiesResponse)
    assert able.server == "fake"


def frames(data: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        found.append((data[0], data[5 : 5 + size]))
        data = data[5 + size :]
    return found


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("StreamResponse", pb.StreamResponseRequest(create=ResponseCreate(model="m"))),
        ("FollowResponse", pb.FollowResponseRequest(response_id="resp_1", starting_after=3)),
    ],
)
async def test_our_own_streams_are_frames(asker: Asker, name: str, request_: Any) -> None:
    asker.caller.batches = [[created()], [done()]]
    asker.caller.ends = RequestError(make_error("session_lost", "it was lost"))

    got = await asker.ask("POST", SERVICE + name, request_.SerializeToString(), content_type="application/proto")

    assert (got.status, got.headers["content-type"]) == (200, "application/vnd.turnwire.frames")
    assert not isinstance(got.body, bytes)
    *messages, (kind, error) = frames(b"".join([piece async for piece in got.body]))
    batches = [(kind, list(pb.StreamResponseResponse.FromString(data).events)) for kind, data in messages]
    assert batches == [(0, [created()]), (0, [done()])]
    assert (kind, Error.FromString(error).code) == (1, "session_lost")
    assert frames(got.filler) == [(0, b"")]
    assert asker.caller.closed == 1
    (asked,) = asker.caller.asked
    assert asked[0] in ("respond", "follow")


@pytest.mark.parametrize(
    ("name", "body", "status", "code", "param"),
    [
        ("GetResponse", pb.GetResponseRequest(response_id="x").SerializeToString(), 404, "response_not_found", None),
        ("GetResponse", b"", 400, "missing_required_parameter", "response_id"),
        ("GetResponse", b"\xff\xff", 400, "invalid_request_error", None),
        ("Connect", b"", 404, "unknown_url", None),
        (
            "StreamResponse",
            pb.StreamResponseRequest(create=ResponseCreate(hold=True)).SerializeToString(),
            400,
            "unsupported_parameter",
            "hold",
        ),
        ("FollowResponse", b"", 400, "missing_required_parameter", "response_id"),
        ("Nothing", b"", 404, "unknown_url", None),
        ("GetResponse/more", b"", 404, "unknown_url", None),
        ("ListModels", b"x" * 5000, 413, "request_too_large", None),
        (
            "CreateResponse",
            pb.CreateResponseRequest(create=ResponseCreate(stream=True)).SerializeToString(),
            400,
            "unsupported_parameter",
            "stream",
        ),
        (
            "CreateResponse",
            pb.CreateResponseRequest(create=ResponseCreate(hold=True)).SerializeToString(),
            400,
            "unsupported_parameter",
            "hold",
        ),
    ],
)
async def test_our_own_methods_answer_errors_as_messages(
    asker: Asker, name: str, body: bytes, status: int, code: str, param: str | None
) -> None:
    answer = await asker.ask("POST", SERVICE + name, body, content_type="application/proto")

    assert (answer.status, answer.headers["content-type"]) == (status, "application/proto")
    error = Error.FromString(answer.whole)
    assert error.code == code
    assert error.message
    if param is not None:
        assert error.param == param


async def test_our_own_methods_take_messages_only(asker: Asker) -> None:
    answer = await asker.ask("POST", f"{SERVICE}ListModels", {}, content_type="application/json")

    assert (answer.status, Error.FromString(answer.whole).code) == (415, "unsupported_content_type")


def test_the_official_shapes_know_no_transport() -> None:
    folder = Path(__file__).parents[2] / "protos" / "turnwire" / "v1" / "official"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^(import|from) (asyncio|grpc|aiohttp|socket|threading|time)\b", text, re.M), path
