"""Frames as RFC 6455 has them, read by a parser that is not ours."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from turnwire.server.doors.websocket import wire

_MANY = 4 * 1024 * 1024


def parse(data: bytes) -> list[Frame]:
    """Reads unmasked frames."""
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    frames: list[Frame] = []
    while not _done(reader):
        parser = Frame.parse(reader.read_exact, mask=False)
        try:
            next(parser)
        except StopIteration as finished:
            frames.append(finished.value)
        else:
            raise AssertionError("a frame is cut short")
    return frames


def _done(reader: StreamReader) -> bool:
    try:
        next(reader.at_eof())
    except StopIteration as finished:
        return bool(finished.value)
    raise AssertionError("the end was fed")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, _MANY])
def test_a_message_is_one_frame_up_to_a_size(size: int) -> None:
    for opcode in (wire.TEXT, wire.BINARY):
        (frame,) = parse(wire.pack([b"x" * size], opcode))
        assert (frame.fin, frame.opcode, len(frame.data)) == (True, opcode, size)


@pytest.mark.parametrize(("size", "count"), [(_MANY + 1, 2), (2 * _MANY, 2), (2 * _MANY + 5, 3)])
def test_a_larger_one_is_fragmented(size: int, count: int) -> None:
    message = bytes(range(256)) * (size // 256) + b"y" * (size % 256)
    frames = parse(wire.pack([message], wire.TEXT))
    assert [frame.opcode for frame in frames] == [Opcode.TEXT] + [Opcode.CONT] * (count - 1)
    assert [frame.fin for frame in frames] == [False] * (count - 1) + [True]
    assert b"".join(frame.data for frame in frames) == message


def test_messages_of_a_batch_follow_each_other() -> None:
    messages = [b"a", b"b" * 200, b"", b"c" * 70_000]
    assert [bytes(frame.data) for frame in parse(wire.pack(messages, wire.BINARY))] == messages
    assert wire.pack([], wire.TEXT) == b""


def test_a_ping_is_a_frame_of_its_own() -> None:
    (frame,) = parse(wire.PING)
    assert (frame.fin, frame.opcode, frame.data) == (True, Opcode.PING, b"")
