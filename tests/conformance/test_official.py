"""Transcripts in the public API's own words, through every JSON door and the bridge."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness.official_player import OfficialTranscript, load_official, official_player

TRANSCRIPTS = list(load_official(Path(__file__).parent / "official"))


@pytest.mark.parametrize(
    ("transcript", "door"),
    [pytest.param(t, door, id=f"{door}-{t.id}") for t in TRANSCRIPTS for door in t.doors],
)
async def test_official_transcript(transcript: OfficialTranscript, door: str) -> None:
    async with official_player(transcript, door) as player:
        await player.play()


def test_names_of_official_transcripts_are_unique() -> None:
    names = [transcript.id for transcript in TRANSCRIPTS]
    assert len(names) == len(set(names))
