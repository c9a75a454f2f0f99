"""What the client's tests share: a protocol with the server's half scripted by hand, a fake server, a real gRPC one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped,unused-ignore]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped,unused-ignore]
from grpc import StatusCode, aio

from turnwire.client._protocol import SessionProtocol
from turnwire.client.exceptions import RpcFailedError, TurnwireError
from turnwire.client.testing import FakeServer, FakeSession
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import make_error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    ConnectResponse,
    GetResponseRequest,
    GetResponseResponse,
    ListModelsRequest,
    ListModelsResponse,
    Model,
)
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceServicer, add_ResponsesServiceServicer_to_server
from turnwire.v1.server_event_pb2 import (
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseAppended,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
)
from turnwire.v1.session_pb2 import RequestRejected, SessionOpen, SessionOpened


class Wire:
    """A protocol, and the server's half of it: each method sends one batch of one event."""

    def __init__(self) -> None:
        self.protocol = SessionProtocol()
        self.event_id = 0
        self.sequence: dict[int, int] = {}

    def opened(self, session_credit: int = 0, response_credit: int = 0) -> None:
        self.protocol.open(SessionOpen())
        opened = SessionOpened(session_credit_bytes=session_credit, response_credit_bytes=response_credit)
        self.send(ServerEvent(opened=opened))
        self.sent()

    def sent(self) -> list[ConnectRequest]:
        requests: list[ConnectRequest] = []
        while (request := self.protocol.next_request()) is not None:
            requests.append(request)
        return requests

    def send(self, *events: ServerEvent) -> None:
        self.protocol.receive(ConnectResponse(first_event_id=self.event_id + 1, events=events))
        self.event_id += len(events)

    def number(self, handle: int, event: ServerEvent) -> ServerEvent:
        event.response = handle
        event.sequence_number = self.sequence.get(handle, 0)
        self.sequence[handle] = event.sequence_number + 1
        return event

    def created(self, handle: int, request_id: str, lane: str = "") -> None:
        response = Response(id=f"resp_{handle}", model="m")
        created = ResponseCreated(response=response, request_id=request_id, lane=lane)
        self.send(self.number(handle, ServerEvent(created=created)))

    def delta(self, handle: int, text: str, index: int = 0) -> None:
        self.send(self.number(handle, ServerEvent(output_text_delta=OutputTextDelta(output_index=index, delta=text))))

    def added(self, handle: int, index: int, item: Item) -> None:
        self.send(self.number(handle, ServerEvent(output_item_added=OutputItemAdded(output_index=index, item=item))))

    def item(self, handle: int, index: int, item: Item) -> None:
        self.send(self.number(handle, ServerEvent(output_item_done=OutputItemDone(output_index=index, item=item))))

    def appended(self, handle: int, index: int, awaiting: Sequence[str] = (), request_id: str = "") -> None:
        appended = ResponseAppended(append_index=index, awaiting_call_ids=awaiting, request_id=request_id)
        self.send(ServerEvent(response=handle, appended=appended))

    def pause(self, handle: int, *awaiting: str, output: Sequence[Item] = ()) -> None:
        self.done(handle, DoneReason.DONE_REASON_TOOL_CALLS, awaiting=awaiting, output=output, continuable=True)

    def complete(self, handle: int, *awaiting: str, output: Sequence[Item] = ()) -> None:
        self.done(handle, DoneReason.DONE_REASON_COMPLETED, awaiting=awaiting, output=output, continuable=True)

    def done(
        self,
        handle: int,
        reason: DoneReason.ValueType,
        *,
        awaiting: Sequence[str] = (),
        void: Sequence[str] = (),
        output: Sequence[Item] = (),
        continuable: bool = False,
    ) -> None:
        done = ResponseDone(
            reason=reason, awaiting_call_ids=awaiting, void_call_ids=void, output=output, continuable=continuable
        )
        self.send(self.number(handle, ServerEvent(done=done)))

    def rejected(self, request_id: str, code: str, response_id: str = "") -> None:
        error = make_error(code, "no")
        rejected = RequestRejected(request_id=request_id, error=error, response_id=response_id)
        self.send(ServerEvent(rejected=rejected))

    def start(self, handle: int = 1, lane: str = "", *, hold: bool = False) -> str:
        """Creates a response and announces it; returns its request id."""
        request = self.protocol.create(ResponseCreate(model="m", hold=hold), lane=lane)
        self.sent()
        self.created(handle, request.id, lane)
        return request.id


@pytest.fixture
def wire() -> Wire:
    one = Wire()
    one.opened()
    return one


@pytest.fixture
def unopened_wire() -> Wire:
    return Wire()


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer()


class Servicer(ResponsesServiceServicer):
    """Carries the fake server's sessions over real gRPC, and answers a few one-shot methods."""

    def __init__(self, fake: FakeServer) -> None:
        self.fake = fake
        self.api_key = ""
        self.stored: dict[str, Response] = {}

    async def Connect(
        self,
        request_iterator: AsyncIterator[ConnectRequest],
        context: aio.ServicerContext[AsyncIterator[ConnectRequest], AsyncIterator[ConnectResponse]],
    ) -> AsyncIterator[ConnectResponse]:
        if self.api_key:
            given = dict(context.invocation_metadata() or ()).get("authorization")
            if given != f"Bearer {self.api_key}":
                await context.abort(StatusCode.UNAUTHENTICATED, "this server wants an API key")
        batches: asyncio.Queue[ConnectResponse | TurnwireError | None] = asyncio.Queue()
        session = FakeSession(self.fake)
        session.deliver, session.end = batches.put_nowait, batches.put_nowait
        self.fake.sessions.append(session)

        async def read() -> None:
            async for request in request_iterator:
                session.receive(request)

        reader = asyncio.create_task(read())
        try:
            while (batch := await batches.get()) is not None:
                if isinstance(batch, RpcFailedError):
                    await context.abort(StatusCode[batch.status], batch.details)
                assert isinstance(batch, ConnectResponse)
                yield batch
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def GetResponse(
        self,
        request: GetResponseRequest,
        context: aio.ServicerContext[GetResponseRequest, Awaitable[GetResponseResponse]],
    ) -> GetResponseResponse:
        if request.response_id in self.stored:
            return GetResponseResponse(response=self.stored[request.response_id])
        info, retry = AnyMessage(), AnyMessage()
        metadata = {"code": "response_not_found", "type": "invalid_request_error", "param": "response_id", "a": "b"}
        info.Pack(ErrorInfo(reason="RESPONSE_NOT_FOUND", domain="turnwire.v1", metadata=metadata))
        retry.Pack(RetryInfo(retry_delay=Duration(seconds=2)))
        message = f"no response {request.response_id}"
        status = Status(code=StatusCode.NOT_FOUND.value[0], message=message, details=[info, retry])
        details = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(StatusCode.NOT_FOUND, message, details)
        raise AssertionError

    async def ListModels(
        self, request: ListModelsRequest, context: aio.ServicerContext[ListModelsRequest, Awaitable[ListModelsResponse]]
    ) -> ListModelsResponse:
        return ListModelsResponse(models=[Model(id="m")])


class GrpcFake:
    """A fake server behind a real port."""

    def __init__(self, fake: FakeServer, servicer: Servicer, server: aio.Server, address: str, socket: str) -> None:
        self.fake = fake
        self.servicer = servicer
        self.server = server
        self.address = address
        self.socket = socket


@pytest.fixture
async def grpc_fake(fake: FakeServer, tmp_path: Path) -> AsyncIterator[GrpcFake]:
    server = aio.server()
    # The methods that are not overridden answer UNIMPLEMENTED.
    servicer = Servicer(fake)  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]
    add_ResponsesServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    socket = f"unix:{tmp_path}/socket"
    server.add_insecure_port(socket)
    await server.start()
    yield GrpcFake(fake, servicer, server, f"127.0.0.1:{port}", socket)
    await server.stop(None)
