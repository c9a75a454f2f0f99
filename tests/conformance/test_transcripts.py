"""Every transcript, against the pure core and through every door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .harness.core_driver import CoreDriver
from .harness.grpc_driver import GrpcDriver
from .harness.http_driver import HttpDriver
from .harness.official_driver import BridgeDriver, OfficialDriver
from .harness.player import Player
from .harness.skips import BRIDGE, HTTP, SUBPROTOCOL, WEBSOCKET, reason_against, skipped
from .harness.socket_driver import SocketDriver
from .harness.transcript import Transcript, load

TRANSCRIPTS = list(load(Path(__file__).parent))
SKIPPED = Path(__file__).parent / "skipped.json"
LEAST = {SUBPROTOCOL: len(TRANSCRIPTS) - 1, WEBSOCKET: 85, BRIDGE: 85, HTTP: 21}
"""So many transcripts run through a door at least."""


@pytest.mark.parametrize("transcript", [pytest.param(t, id=f"core-{t.id}") for t in TRANSCRIPTS])
async def test_transcript_against_the_core(transcript: Transcript) -> None:
    await Player(transcript, CoreDriver(transcript)).play()


@pytest.mark.parametrize("transcript", [pytest.param(t, id=f"grpc-{t.id}") for t in TRANSCRIPTS])
async def test_transcript_through_grpc(transcript: Transcript) -> None:
    async with GrpcDriver(transcript).running() as driver:
        await Player(transcript, driver).play()


def _through(door: str) -> pytest.MarkDecorator:
    """Parametrizes with the transcripts that can be said through a door."""
    said = [t for t in TRANSCRIPTS if not reason_against(t, door)]
    return pytest.mark.parametrize("transcript", [pytest.param(t, id=f"{door}-{t.id}") for t in said])


@_through(SUBPROTOCOL)
async def test_transcript_through_the_subprotocol(transcript: Transcript) -> None:
    async with SocketDriver(transcript).running() as driver:
        await Player(transcript, driver).play()


@_through(WEBSOCKET)
async def test_transcript_through_websocket(transcript: Transcript) -> None:
    async with OfficialDriver(transcript).running() as driver:
        await Player(transcript, driver).play()


@_through(BRIDGE)
async def test_transcript_through_a_bridge(transcript: Transcript) -> None:
    async with BridgeDriver(transcript).running() as driver:
        await Player(transcript, driver).play()


@_through(HTTP)
async def test_transcript_through_http(transcript: Transcript) -> None:
    async with HttpDriver(transcript).running() as driver:
        await Player(transcript, driver).play()


def test_nothing_is_skipped_without_a_reason_that_is_listed() -> None:
    """To list what is skipped anew: `python -m tests.conformance.harness.skips`."""
    found = skipped(TRANSCRIPTS)
    assert found == json.loads(SKIPPED.read_text())
    for door, reasons in found.items():
        run = len(TRANSCRIPTS) - sum(map(len, reasons.values()))
        assert run >= LEAST[door], f"{door} runs {run} transcripts only"


def test_names_of_transcripts_are_unique() -> None:
    names = [transcript.id for transcript in TRANSCRIPTS]
    assert len(names) == len(set(names))
