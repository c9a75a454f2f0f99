"""A chat-completions upstream that does as it is told, for better or worse; run as a process of its own.

It answers each `POST /v1/chat/completions` with the next script it was given over `/control/script`, and tells over the
other `/control/…` what reached it. A script is a list of steps: `head` (status and headers), `send` (bytes in base64,
one HTTP chunk), `raw` (bytes without framing), `gate` (wait until the gate is opened), `flood` (the same chunk many
times), `end` (the last chunk), `close` and `reset` (the connection).
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from typing import Any

Script = list[dict[str, Any]]


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


PLAIN = (
    event(delta(role="assistant", content=""))
    + event(delta(content="Hello."))
    + event(delta("stop"))
    + event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
    + b"data: [DONE]\n\n"
)


def answering(body: bytes) -> Script:
    return [{"head": 200}, {"send": base64.b64encode(body).decode()}, {"end": True}]


class Book:
    """What happened, and what is to happen."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.requests: list[dict[str, Any]] = []
        self.happened: set[str] = set()
        self.changed = asyncio.Condition()
        self.connections = 0
        self.models: object = {"data": [{"id": "m", "max_model_len": 4096}]}

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def note(self, what: str) -> None:
        self.happened.add(what)
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def wait(self, what: str) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: what in self.happened)


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = b""
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.task: asyncio.Task[None] | None = None
        self.number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.counted = False
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pause_writing(self) -> None:
        self.flowing.clear()
        self.server.book.note(f"stalled {self.number}")

    def resume_writing(self) -> None:
        self.flowing.set()
        self.server.book.note(f"flowing {self.number}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.number >= 0:
            self.server.book.note(f"lost {self.number}")
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, rest = self.buffer.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
            size = int(headers.get("content-length", "0"))
            if len(rest) < size:
                return
            self.buffer = rest[size:]
            method, path, _ = lines[0].split(" ", 2)
            self.task = asyncio.get_running_loop().create_task(self.answer(method, path, headers, rest[:size]))

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        book = self.server.book
        if path.startswith("/control/"):
            await self.control(path.removeprefix("/control/"), body)
            return
        if not self.counted:
            self.counted = True
            book.connections += 1
        if path.endswith("/models"):
            book.note("asked for models")
            if isinstance(book.models, int):
                self.reply(book.models, {})
            else:
                self.reply(200, book.models)
            return
        self.number = len(book.requests)
        book.requests.append(
            {"method": method, "path": path, "headers": headers, "body": base64.b64encode(body).decode()}
        )
        book.note(f"request {self.number}")
        script = book.scripts.pop(0) if book.scripts else answering(PLAIN)
        for step in script:
            await self.step(step)
        # Whoever comes next on this connection is counted when it comes.
        self.number = -1

    async def step(self, step: dict[str, Any]) -> None:
        write = self.transport.write
        match step:
            case {"head": status, **more}:
                extra = "".join(f"{k}: {v}\r\n" for k, v in more.get("headers", {}).items())
                kind = more.get("type", "text/event-stream")
                framing = "" if more.get("unframed") else "transfer-encoding: chunked\r\n"
                write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{framing}{extra}\r\n".encode())
            case {"send": text}:
                data = base64.b64decode(text)
                # A chunk of no bytes would be the last.
                if data:
                    write(b"%x\r\n%b\r\n" % (len(data), data))
                await asyncio.sleep(0)
            case {"raw": text}:
                write(base64.b64decode(text))
                await asyncio.sleep(0)
            case {"flood": text, "times": times}:
                data = base64.b64decode(text)
                framed = b"%x\r\n%b\r\n" % (len(data), data)
                for _ in range(times):
                    await self.flowing.wait()
                    write(framed)
            case {"gate": name}:
                await self.server.book.gate(name).wait()
            case {"end": _}:
                write(b"0\r\n\r\n")
            case {"close": _}:
                self.transport.close()
            case {"reset": _}:
                raw = self.transport.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.transport.abort()
            case _:
                msg = f"unknown step {step}"
                raise ValueError(msg)

    async def control(self, what: str, body: bytes) -> None:
        book = self.server.book
        value: Any = json.loads(body) if body else None
        match what.split("/"):
            case ["reset"]:
                for gate in book.gates.values():
                    gate.set()
                self.server.book = Book()
            case ["script"]:
                book.scripts.append(value)
            case ["models"]:
                book.models = value
            case ["gate", name]:
                book.gate(name).set()
            case ["wait"]:
                await book.wait(value)
            case _:
                pass
        self.reply(200, {"requests": book.requests, "connections": book.connections})

    def reply(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


class Server:
    def __init__(self) -> None:
        self.book = Book()


async def main() -> None:
    state = Server()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(state), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
