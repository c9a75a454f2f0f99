"""Every optimization can be switched off: the answers stay as they are, and what was kept is done again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from turnwire.bench.ablation_rig import CHAT, TOKENS, Upstreams, upstreams
from turnwire.server.config import SWITCHES

from .scenes import Seen, picture, run, serving, user
from .wire import wired

GROW: dict[str, dict[str, set[str]]] = {
    "token-cache": {TOKENS: {"render", "tokenize"}, CHAT: set()},
    "item-cache": {TOKENS: {"decode"}, CHAT: {"decode", "encode"}},
    "incremental-safety": {TOKENS: {"classify"}, CHAT: {"classify"}},
    "incremental-validation": {TOKENS: {"validate", "pair"}, CHAT: {"validate", "pair"}},
}
"""The stages that go through the history where something is off, by model; others go through what is new."""


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstreams]:
    with upstreams() as running:
        yield running


@pytest.fixture(scope="module")
def reference(behind: Upstreams, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    with serving(behind, tmp_path_factory.mktemp("reference")) as process:
        return run(process)


def check_growth(seen: Seen, off: tuple[str, ...]) -> None:
    for model, turns in seen.visited.items():
        expected = {stage for name in off for stage in GROW.get(name, {}).get(model, ())}
        early, late = turns[1], turns[-1]
        assert {stage for stage in late if late[stage] > early[stage]} == expected


def test_with_everything_on_no_stage_goes_through_the_history(reference: Seen) -> None:
    check_growth(reference, ())
    assert reference.visited[TOKENS][-1]["tools"] == 0
    assert reference.largest_batch > 1


@pytest.mark.parametrize("off", [*((name,) for name in SWITCHES), SWITCHES], ids=[*SWITCHES, "everything"])
def test_the_answers_do_not_depend_on_what_is_off(
    off: tuple[str, ...], behind: Upstreams, reference: Seen, tmp_path: Path
) -> None:
    with serving(behind, tmp_path, off) as process:
        seen = run(process)
    assert seen.answers == reference.answers
    check_growth(seen, off)
    late, usual = seen.visited[TOKENS][-1], reference.visited[TOKENS][-1]
    assert (late["tools"] > 0) == ("tool-cache" in off)
    assert (late["resolve"] > usual["resolve"]) == ("route-cache" in off)
    assert (seen.largest_batch == 1) == ("delta-batching" in off)


def test_without_images_in_line_the_service_is_asked(behind: Upstreams, tmp_path: Path) -> None:
    async def ask(address: str) -> None:
        async with wired(address) as wire:
            with pytest.raises(AssertionError, match="The image service is not available"):
                await wire.create(model=CHAT, input=[user("What is this?", picture())])

    nobody = replace(behind, images="http://127.0.0.1:9")
    with serving(nobody, tmp_path, ("inline-images",)) as process:
        asyncio.run(ask(process.addresses["grpc"]))


def test_without_overlap_the_ledger_has_a_response_when_its_client_does(behind: Upstreams, tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def check(address: str) -> None:
        async with wired(address) as wire:
            for _ in range(5):
                await wire.create(model=CHAT, input="begin")
                with sqlite3.connect(data / "turnwire.db") as db:
                    found = db.execute("select count(*) from ledger where response_id = ?", (wire.response_id,))
                    assert found.fetchone() == (1,)

    with serving(behind, tmp_path, ("overlapped-ledger",), data=data) as process:
        asyncio.run(check(process.addresses["grpc"]))
