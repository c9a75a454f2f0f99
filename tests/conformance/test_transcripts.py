"""Every transcript, against the pure core and through every door."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness.core_driver import CoreDriver
from .harness.grpc_driver import GrpcDriver
from .harness.player import Player
from .harness.transcript import Transcript, load

TRANSCRIPTS = list(load(Path(__file__).parent))


@pytest.mark.parametrize("transcript", [pytest.param(t, id=f"core-{t.id}") for t in TRANSCRIPTS])
async def test_transcript_against_the_core(transcript: Transcript) -> None:
    await Player(transcript, CoreDriver(transcript)).play()


@pytest.mark.parametrize("transcript", [pytest.param(t, id=f"grpc-{t.id}") for t in TRANSCRIPTS])
async def test_transcript_through_grpc(transcript: Transcript) -> None:
    async with GrpcDriver(transcript).running() as driver:
        await Player(transcript, driver).play()


def test_names_of_transcripts_are_unique() -> None:
    names = [transcript.id for transcript in TRANSCRIPTS]
    assert len(names) == len(set(names))
