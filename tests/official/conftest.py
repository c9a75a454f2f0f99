"""What the tests of the official shapes share: streams of a real core with an engine that says what it is told, and a
caller that answers what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.testing import make_services
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.official.backend import Link
from turnwire.v1.official.http import HttpApi, HttpRequest, HttpResponse
from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    CompactResponseResponse,
    GetCapabilitiesResponse,
    ListInputItemsRequest,
    ListInputItemsResponse,
    Model,
)
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen


async def _play(
    create: ResponseCreate, emissions: Sequence[Sequence[Chunk]], outcome: Finish | EngineFailure
) -> tuple[list[ServerEvent], Response | None]:
    engine = StepEngine()
    room = SessionRoom(make_services([engine]))
    caller = LocalBackend(room).caller(None)
    events: list[ServerEvent] = []

    async def drive() -> None:
        await engine.started(1)
        for chunks in emissions:
            engine.emit(0, chunks)
            await asyncio.sleep(0)
        engine.find(0).end(outcome)

    driving = asyncio.create_task(drive())
    async for batch in caller.respond(create, RequestContext()):
        events += batch
    await driving
    try:
        later = await caller.get_response(events[0].created.response.id)
    except RequestError:
        later = None
    return events, later


Play = Callable[
    [ResponseCreate, Sequence[Sequence[Chunk]], Finish | EngineFailure], tuple[list[ServerEvent], Response | None]
]


@pytest.fixture(scope="session")
def play() -> Play:
    """Runs a response through a real core; returns its compact events, and what is retrieved afterwards."""

    def run(
        create: ResponseCreate, emissions: Sequence[Sequence[Chunk]], outcome: Finish | EngineFailure
    ) -> tuple[list[ServerEvent], Response | None]:
        return asyncio.run(_play(create, emissions, outcome))

    return run


@dataclass
class FakeCaller:
    """Answers as told, and keeps what it was asked."""

    batches: list[Sequence[ServerEvent]] = field(default_factory=list[Sequence[ServerEvent]])
    ends: RequestError | Exception | None = None
    """What is raised after the batches."""
    response: Response | None = None
    page: ListInputItemsResponse = field(default_factory=ListInputItemsResponse)
    models: list[Model] = field(default_factory=list[Model])
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    closed: int = 0
    """Streams that were closed."""

    async def respond(
        self, create: ResponseCreate, context: RequestContext
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        kept = ResponseCreate()
        kept.CopyFrom(create)
        self.asked.append(("respond", (kept, context)))
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                yield batch

    async def follow_response(
        self, response_id: str, starting_after: int | None
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        self.asked.append(("follow", (response_id, starting_after)))
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                yield batch

    async def _batches(self) -> AsyncGenerator[Sequence[ServerEvent], None]:
        try:
            for batch in self.batches:
                yield batch
            if self.ends is not None:
                raise self.ends
        finally:
            self.closed += 1

    def connect(self, opening: SessionOpen | None, door: str) -> Link:
        raise AssertionError

    async def get_response(self, response_id: str, session_id: str = "") -> Response:
        self.asked.append(("get", (response_id, session_id) if session_id else response_id))
        return self._found(response_id)

    async def delete_response(self, response_id: str) -> None:
        self.asked.append(("delete", response_id))
        self._found(response_id)

    async def cancel_response(self, response_id: str) -> Response:
        self.asked.append(("cancel", response_id))
        return self._found(response_id)

    async def list_input_items(self, request: ListInputItemsRequest) -> ListInputItemsResponse:
        self.asked.append(("list", request))
        return self.page

    async def count_input_tokens(self, create: ResponseCreate) -> int:
        self.asked.append(("count", create))
        return 7

    async def compact_response(self, create: ResponseCreate) -> CompactResponseResponse:
        self.asked.append(("compact", create))
        return CompactResponseResponse(id="resp_c", created_at=1)

    async def list_models(self) -> Sequence[Model]:
        return self.models

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        return GetCapabilitiesResponse(server="fake")

    def _found(self, response_id: str) -> Response:
        if self.response is None:
            message = f"Response with id '{response_id}' not found."
            raise reject("response_not_found", message, param="response_id")
        return self.response


class FakeBackend:
    """Lets in whoever knows the word."""

    def __init__(self, caller: FakeCaller, key: str | None = None) -> None:
        self.one = caller
        self.key = key

    def caller(self, authorization: str | None) -> FakeCaller:
        if self.key is not None and authorization != f"Bearer {self.key}":
            raise reject("invalid_api_key", "Incorrect API key provided.")
        return self.one


class Asker:
    """Asks an API over a fake caller."""

    def __init__(self) -> None:
        self.caller = FakeCaller()
        self.backend = FakeBackend(self.caller)
        self.api = HttpApi(self.backend, max_body=4096, new_request_id=lambda: "req_1")

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, list[str]] | None = None,
        **headers: str,
    ) -> HttpResponse:
        """Sends a request; a body that is not bytes goes as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        named = {"content-type": "application/json"} | {name.replace("_", "-"): v for name, v in headers.items()}
        return await self.api.handle(HttpRequest(method, path, query or {}, named, data))

    async def refusal(self, *arguments: Any, **more: Any) -> tuple[int, str, str | None]:
        """Sends a request that must be refused; returns status, code and parameter."""
        answer = await self.ask(*arguments, **more)
        assert isinstance(answer.body, bytes)
        error = msgspec.json.decode(answer.body)["error"]
        assert error.keys() >= {"message", "type", "param", "code"}
        assert error["message"]
        return answer.status, error["code"], error["param"]


@pytest.fixture
def asker() -> Asker:
    return Asker()


def failure(code: str = "server_error") -> Error:
    return reject(code, "it failed").error
