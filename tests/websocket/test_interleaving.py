"""Many lanes at once: each reads as if it were alone, whatever the order in which their models speak."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.runtime.local import LocalBackend
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, FinishReason, TextChunk, TextEnd
from turnwire.v1.json import to_json

if TYPE_CHECKING:
    from tests.websocket.conftest import Door, Event, Peer

    from turnwire.server.session.chunks import Chunk

_TOOLS = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def speech(chance: random.Random) -> list[list[Chunk]]:
    """Returns what a model says, in pieces."""
    pieces: list[list[Chunk]] = []
    for _ in range(chance.randint(0, 5)):
        channel = chance.choice([Channel.TEXT, Channel.REASONING, Channel.SUMMARY])
        match chance.randint(0, 2):
            case 0:
                pieces.append([CallStart("look"), CallDelta("{"), CallDelta("}"), CallEnd()])
            case 1:
                pieces.append([TextChunk(channel, chance.choice(["é", "a\n", '"', "\U0001f600"]))])
            case _:
                pieces.append([TextChunk(channel, "word "), TextEnd()])
    return pieces


def deltas(events: list[Event]) -> dict[tuple[int, str], str]:
    """Joins the deltas of each item, by what they are of."""
    joined: dict[tuple[int, str], str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            key = event["output_index"], event["type"].split(".")[1]
            joined[key] = joined.get(key, "") + event["delta"]
    return joined


def texts(output: list[dict[str, Any]]) -> dict[tuple[int, str], str]:
    """Returns what was streamed of each item, by what it is."""
    found: dict[tuple[int, str], str] = {}
    for index, item in enumerate(output):
        if item["type"] == "function_call":
            found[index, "function_call_arguments"] = item["arguments"]
        elif item["type"] == "message":
            found[index, "output_text"] = _joined(item["content"])
        else:
            found[index, "reasoning_text"] = _joined(item.get("content") or [])
            found[index, "reasoning_summary_text"] = _joined(item["summary"])
    return {key: text for key, text in found.items() if text}


def _joined(parts: list[dict[str, str]]) -> str:
    return "".join([part["text"] for part in parts])


@pytest.mark.parametrize("seed", range(12))
async def test_every_lane_adds_up_to_its_own_response(door: Door, peer: Peer, seed: int) -> None:
    chance = random.Random(seed)
    lanes = [None, *(f"lane-{index}" for index in range(chance.randint(1, 6)))]
    waiting: dict[str | None, list[list[Chunk]]] = {}
    ids: dict[str | None, str] = {}
    for lane in lanes:
        ids[lane] = await peer.create(f"in {lane}", tools=_TOOLS, **({"stream_id": lane} if lane else {}))
        waiting[lane] = speech(chance)
    while waiting:
        lane = chance.choice(list(waiting))
        if waiting[lane]:
            door.sampling(ids[lane]).emit(waiting[lane].pop(0))
            continue
        del waiting[lane]
        if chance.random() < 0.2:
            door.engine.fail(ids[lane])
        else:
            door.engine.finish(ids[lane], chance.choice([FinishReason.STOP, FinishReason.LENGTH]))
    for _ in lanes:
        while (await peer.next())["type"] not in _TERMINAL:
            pass

    caller = LocalBackend(door.room).caller(None)
    for lane in lanes:
        events = [event for event in peer.seen if event.get("stream_id") == lane]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] in _TERMINAL for event in events] == [False] * (len(events) - 1) + [True]
        places = [event["output_index"] for event in events if "output_index" in event]
        assert places == sorted(places)
        end = events[-1]["response"]
        assert end["id"] == ids[lane]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert end["output"] == done
        streamed = {key: text for key, text in deltas(events).items() if key[0] < len(done)}
        assert streamed == texts(done)
        later = await caller.get_response(ids[lane])
        assert json.loads(to_json(later, fill=True)) == end
