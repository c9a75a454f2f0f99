"""Whatever comes in over HTTP is answered, and never by a fault of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.server.engine.port import ModelInfo, Sink
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import Channel, Finish, TextChunk
from turnwire.server.session.prompt import Prompt
from turnwire.server.testing import make_services
from turnwire.v1.error_pb2 import Error
from turnwire.v1.official.http import HttpApi, HttpRequest, HttpResponse
from turnwire.v1.response_pb2 import ResponseCreate

pytestmark = pytest.mark.fuzz

BOUND: Final = 10.0
SERVICE: Final = "/turnwire.v1.ResponsesService/"


class PromptEngine(StepEngine):
    """Answers every prompt at once."""

    def start(self, prompt: Prompt, sink: Sink) -> SteppedPass:
        """Begins a pass that has a word to say."""
        started = super().start(prompt, sink)
        asyncio.get_running_loop().call_soon(self._answer, started)
        return started

    @staticmethod
    def _answer(started: SteppedPass) -> None:
        if not started.aborted:
            started.emit([TextChunk(Channel.TEXT, "word")])
            started.end(Finish())


async def _answers(requests: Sequence[HttpRequest]) -> list[tuple[int, bytes]]:
    room = SessionRoom(make_services([PromptEngine([ModelInfo("m")])]))
    api = HttpApi(LocalBackend(room))
    answers: list[tuple[int, bytes]] = []
    async with asyncio.timeout(BOUND):
        for request in requests:
            answer = await api.handle(request)
            answers.append((answer.status, await _whole(answer)))
        await room.background.aclose()
        await room.idle()
    return answers


async def _whole(answer: HttpResponse) -> bytes:
    if isinstance(answer.body, bytes):
        return answer.body
    return b"".join([piece async for piece in answer.body])


def _check(request: HttpRequest) -> None:
    for status, body in asyncio.run(_answers([request])):
        assert 200 <= status < 500 or status == 501, (status, body)
        if request.method == "HEAD":
            assert body == b""
        elif request.path.startswith(SERVICE):
            assert status == 200 or Error.FromString(body).code
        elif status != 200:
            error = msgspec.json.decode(body)["error"]
            assert error["code"]
            assert error["message"]
        elif body.startswith(b"event: "):
            assert body.endswith(b"data: [DONE]\n\n")
            assert b"event: error" not in body
        elif body:
            msgspec.json.decode(body)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUE: st.SearchStrategy[Any] = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
KEYS = [field.name for field in ResponseCreate.DESCRIPTOR.fields]
TYPES = [
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "item_reference", "compaction", "local_shell_call_output", "mcp_approval_response", "web_search_call", "new_type",
]  # fmt: skip
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES) | VALUE,
        "role": st.sampled_from(["user", "assistant", "system"]) | VALUE,
        "content": TEXT | VALUE,
        "id": TEXT | VALUE,
        "call_id": TEXT | VALUE,
        "output": TEXT | VALUE,
        "name": TEXT | VALUE,
        "arguments": TEXT | VALUE,
        "summary": VALUE,
        "encrypted_content": TEXT | VALUE,
    },
)
TOOL = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "namespace", "mcp", "web_search", "shell"]) | VALUE},
    optional={"name": TEXT | VALUE, "parameters": VALUE, "strict": VALUE, "tools": VALUE, "server_label": VALUE},
)
BODY = st.fixed_dictionaries(
    {"model": st.just("m") | VALUE},
    optional={
        "input": TEXT | st.lists(ITEM, max_size=4) | VALUE,
        "tools": st.lists(TOOL, max_size=3) | VALUE,
        "stream": st.booleans() | VALUE,
        "background": st.booleans() | VALUE,
    },
).flatmap(lambda body: st.dictionaries(st.sampled_from(KEYS) | TEXT, VALUE, max_size=3).map(lambda more: more | body))
POSTS = ["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"]
JSON_HEADERS = {"content-type": "application/json"}


def _encoded(body: Any) -> bytes:
    """Writes what is sent; numbers that JSON does not have become null."""
    return msgspec.json.encode(body)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(POSTS), BODY)
def test_any_body_is_answered(path: str, body: Any) -> None:
    _check(HttpRequest("POST", path, {}, JSON_HEADERS, _encoded(body)))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(POSTS), BODY, st.data())
def test_any_broken_body_is_answered(path: str, body: Any, data: st.DataObject) -> None:
    text = bytearray(_encoded(body))
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))

    _check(HttpRequest("POST", path, {}, JSON_HEADERS, bytes(text[: data.draw(st.integers(0, len(text)))])))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.sampled_from(["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT"]) | TEXT,
    st.lists(
        st.sampled_from(["v1", "responses", "models", "input_items", "cancel", "conversations"]) | TEXT, max_size=5
    ),
    st.dictionaries(
        st.sampled_from(["stream", "starting_after", "limit", "order", "after", "include_obfuscation"]) | TEXT,
        st.lists(TEXT | st.sampled_from(["true", "1", "-1", "asc"]), max_size=2),
        max_size=3,
    ),
    st.binary(max_size=50),
)
def test_any_request_is_answered(method: str, path: list[str], query: dict[str, list[str]], body: bytes) -> None:
    _check(HttpRequest(method, "/" + "/".join(path), query, JSON_HEADERS, body))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    st.sampled_from(
        ["CreateResponse", "GetResponse", "DeleteResponse", "CancelResponse", "ListInputItems", "CountInputTokens"]
    ),
    st.binary(max_size=80) | BODY.map(lambda body: _encoded(body)),
)
def test_any_message_is_answered(name: str, body: bytes) -> None:
    _check(HttpRequest("POST", SERVICE + name, {}, {"content-type": "application/proto"}, body))
