"""The measurement of gateways: what it makes of samples, what it catches, and whom it leaves out."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

from turnwire.bench.doors_processes import Process, running
from turnwire.bench.fakes.upstream import TOKENS, Said, Seen, conversation, digest, words
from turnwire.bench.peers import playing
from turnwire.bench.peers.__main__ import figures_of, main
from turnwire.bench.peers.chains import chain
from turnwire.bench.peers.clients import Answer, Client, DirectChat, DirectResponses, Failed, Sse
from turnwire.bench.peers.conversations import Conversation, chat_body, history, responses_body
from turnwire.bench.peers.environments import python_of, version_of
from turnwire.bench.peers.gateways import GATEWAYS
from turnwire.bench.peers.lines import Block, ahead, floors, growths, lines
from turnwire.bench.peers.measuring import Campaign, Outcome, Plan, rotated
from turnwire.bench.peers.playing import Player, Watch, fault
from turnwire.bench.peers.port import DIRECT, Cell, Gateway, Launch, Place, Unavailable

TEXT = "".join(words(TOKENS))


# Lines from samples


def block(cell: Cell, repetition: int, *ttft: float, form: str = "") -> Block:
    return Block(cell, repetition, list(ttft), [2 * each for each in ttft], [0.001] * len(ttft), [], 5_000_000, form)


def direct(size: int) -> Cell:
    return Cell(DIRECT["chat"], "direct", "sse", size)


def chained(name: str, size: int) -> Cell:
    return Cell(name, "chained", "sse", size)


def test_what_a_gateway_adds_is_its_time_less_the_upstreams_in_the_same_repetition() -> None:
    blocks = [
        block(direct(1), 0, 0.001, 0.001, 0.009),
        block(direct(1), 1, 0.005),
        block(chained("smg", 1), 0, 0.003, 0.003, 0.050, form="chat"),
        block(chained("smg", 1), 1, 0.007, form="chat"),
    ]
    (line,) = lines(blocks, {"smg": "9.9"})
    assert line["added_ttft_ms"] == [2.0, 2.0, 2.0]
    assert line["ttft_ms"] == [5.0, 3.0, 7.0]
    assert line["total_ms"][0] == 10.0
    assert (line["cpu_ms"], line["memory_mb"], line["requests"], line["failed"]) == (1.0, 5.0, 4, 0)
    assert (line["version"], line["asks"]) == ("9.9", "chat")
    (floor,) = floors(blocks)
    assert (floor["gateway"], floor["ttft_ms"][0]) == ("upstream (chat)", 3.0)


def test_a_gateway_is_held_against_the_form_in_which_it_asks() -> None:
    blocks = [
        block(direct(1), 0, 0.001),
        block(Cell(DIRECT["responses"], "direct", "sse", 1), 0, 0.002),
        block(chained("smg", 1), 0, 0.010, form="responses"),
    ]
    assert lines(blocks, {"smg": "1"})[0]["added_ttft_ms"][0] == 8.0


def test_turns_that_failed_are_counted_and_told_and_have_no_times() -> None:
    failed = Block(chained("smg", 1), 0, failures=["Failed: no", "Failed: no"])
    (line,) = lines([failed], {"smg": "1"})
    assert (line["requests"], line["failed"], line["failures"]) == (2, 2, ["Failed: no"])
    assert not line.keys() & {"ttft_ms", "total_ms", "added_ttft_ms", "cpu_ms"}
    msgspec.json.encode(line)


def test_growth_is_what_is_added_to_the_largest_history_more_than_to_the_smallest() -> None:
    blocks = [block(direct(size), n, 0.001 * size) for size in (1, 9) for n in (0, 1)]
    blocks += [block(chained("smg", size), n, 0.003 * size, form="chat") for size in (1, 9) for n in (0, 1)]
    (growth,) = growths(blocks)
    assert (growth["from"], growth["to"], growth["growth_ms"]) == (1, 9, [16.0, 16.0, 16.0])


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        pytest.param([1.0, 0.9, 1.1], "ahead", id="wholly-below"),
        pytest.param([1.0, 0.9, 2.1], "level", id="overlapping"),
        pytest.param([4.0, 3.9, 4.1], "behind", id="wholly-above"),
    ],
)
def test_we_are_ahead_only_where_the_intervals_are_apart(ours: list[float], verdict: str) -> None:
    def line(gateway: str, figure: list[float]) -> dict[str, object]:
        return {"gateway": gateway, "mode": "chained", "transport": "ws", "history": 1, "added_ttft_ms": figure}

    made = [line("turnwire", ours), line("smg", [9.0, 8.0, 10.0]), line("agentic-api", [2.5, 2.0, 3.0])]
    (found,) = ahead(made)
    assert (found["verdict"], found["best"]) == (verdict, "agentic-api ws")


def test_every_repetition_begins_with_another_cell_and_has_them_all() -> None:
    cells = [chained("smg", n) for n in range(6)]
    orders = [rotated(cells, n, 3) for n in range(3)]
    assert [order[0] for order in orders] == [cells[0], cells[2], cells[4]]
    assert all(sorted(order) == cells for order in orders)


# Conversations and the upstream


@pytest.mark.parametrize("size", [1, 1024, 100 * 1024, 1024**2])
def test_a_history_has_the_size_asked_for_and_the_user_has_the_last_word(size: int) -> None:
    said = history(size)
    assert sum(len(each.text) for each in said) == size
    assert [each.role for each in said] == [("user", "assistant")[n % 2] for n in range(len(said))]
    assert said[-1].role == "user"
    assert history(size, 1)[0] != said[0]


def test_the_same_conversation_has_one_digest_in_either_form_and_in_parts() -> None:
    said = [Said("user", "a"), Said("assistant", "b")]
    forms = [chat_body(said), responses_body(said)]
    parts = [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"text": "b"}]}]
    bodies = [*map(msgspec.json.decode, forms), {"input": parts}]
    assert {digest(conversation(body)) for body in bodies} == {digest(said)}
    assert digest([Said("user", "ab")]) != digest(said)


@pytest.fixture(scope="module")
def upstream() -> Generator[Process, None, None]:
    with running((sys.executable, "-m", "turnwire.bench.fakes.upstream"), ("upstream",)) as process:
        yield process


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed here, so nothing has to settle."""

    async def at_once(pids: list[int]) -> None:
        del pids

    monkeypatch.setattr(playing, "settled", at_once)


@asynccontextmanager
async def opened(client: Client) -> AsyncGenerator[Client]:
    await client.open()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def watching(upstream: Process) -> AsyncGenerator[Watch]:
    watch = Watch(upstream.addresses["upstream"])
    await watch.open()
    try:
        await watch.take()
        yield watch
    finally:
        await watch.close()


@pytest.mark.parametrize(("client", "form"), [(DirectChat, "chat"), (DirectResponses, "responses")])
async def test_the_upstream_answers_both_forms_alike_and_remembers_what_it_got(
    upstream: Process, client: Callable[[str], Client], form: str
) -> None:
    whole = Conversation(history(20_000), TEXT).whole("new")
    async with watching(upstream) as watch, opened(client(upstream.addresses["upstream"])) as asked:
        answer = await asked.ask(asked.request(whole))
        seen = await watch.take()
        assert answer.text == TEXT
        assert 0 < answer.ttft <= answer.total
        assert (seen.form, seen.requests, seen.fewest, seen.most) == (form, 1, len(whole), len(whole))
        assert seen.digest == digest(whole)
        assert (await watch.take()).requests == 0


async def test_the_upstream_has_no_store_and_says_so(upstream: Process) -> None:
    async with opened(DirectResponses(upstream.addresses["upstream"])) as client:
        with pytest.raises(Failed, match="previous_response_not_found"):
            await client.ask(client.request([Said("user", "go on")], "resp_1"))


# What is caught

WHOLE = Conversation(history(10), TEXT).whole("new")
RIGHT = Answer(0.1, 0.2, "id", TEXT)
SEEN = Seen(1, "chat", len(WHOLE), len(WHOLE), 1, digest(WHOLE))


def test_a_right_turn_has_no_fault() -> None:
    assert fault(RIGHT, TEXT, SEEN, WHOLE) == ""


@pytest.mark.parametrize(
    ("answer", "seen", "said"),
    [
        pytest.param(RIGHT, Seen(0, "", 0, 0, 0, ""), "was not asked", id="cached"),
        pytest.param(RIGHT, Seen(1, "chat", 1, 1, 1, ""), "got 1 of 3 messages", id="dropped"),
        pytest.param(RIGHT, Seen(1, "chat", 3, 3, 1, digest(WHOLE[::-1])), "not with the roles and texts", id="mixed"),
        pytest.param(replace(RIGHT, text="Other"), SEEN, "found 'Other'", id="other-text"),
    ],
)
def test_a_wrong_turn_is_told_by_what_is_wrong_with_it(answer: Answer, seen: Seen, said: str) -> None:
    assert said in fault(answer, TEXT, seen, WHOLE)


class Forgetful:
    """A gateway that keeps conversations, but only their newest messages, and may change the text."""

    def __init__(self, upstream: str, keep: int, *, change: bool = False) -> None:
        self._upstream = f"{upstream}/v1/responses"
        self._keep = keep
        self._change = change
        self._stored: dict[str, list[object]] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        app = web.Application(client_max_size=1024**3)
        app.router.add_post("/v1/responses", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        items = self._stored.get(body.pop("previous_response_id", ""), []) + body["input"]
        body["input"] = items[-self._keep :]
        async with aiohttp.ClientSession() as http, http.post(self._upstream, json=body) as response:
            data = await response.read()
        name = data.partition(b'"resp_')[2].partition(b'"')[0].decode()
        self._stored[f"resp_{name}"] = [*items, {"type": "message", "role": "assistant", "content": TEXT}]
        return web.Response(body=data.replace(b"word7", b"word8") if self._change else data)


async def test_a_gateway_that_drops_history_in_silence_is_caught(upstream: Process) -> None:
    async with watching(upstream) as watch, Forgetful(upstream.addresses["upstream"], 2).serving() as url:
        player = Player(Cell("wrong", "chained", "sse", 1024), lambda: Sse(url), [], watch, TEXT)
        with pytest.raises(Failed, match="the upstream got 2 of 3 messages"):
            await player.turn("now")


async def test_a_gateway_that_changes_the_text_is_caught(upstream: Process) -> None:
    gateway = Forgetful(upstream.addresses["upstream"], 99, change=True)
    async with watching(upstream) as watch, gateway.serving() as url:
        player = Player(Cell("wrong", "full", "sse", 1024), lambda: Sse(url), [], watch, TEXT)
        with pytest.raises(Failed, match="expected the text"):
            await player.turn("now")


async def test_a_right_gateway_passes_in_every_mode(upstream: Process) -> None:
    async with watching(upstream) as watch, Forgetful(upstream.addresses["upstream"], 99).serving() as url:
        for mode in ("unseen", "full", "chained"):
            player = Player(Cell("right", mode, "sse", 1024), lambda: Sse(url), [], watch, TEXT)
            played = await player.turn("now")
            await player.close()
            assert (played.form, played.answer.text) == ("responses", TEXT)


async def test_a_chain_tells_from_which_turn_on_history_is_dropped(upstream: Process) -> None:
    forgetful = Forgetful(upstream.addresses["upstream"], 5)
    async with watching(upstream) as watch, forgetful.serving() as url, opened(Sse(url)) as client:
        found = await chain(client, watch, 6)
    assert found == {"turns": 6, "messages": 5, "expected": 11, "wrong_from": 4}


async def test_a_chain_that_is_refused_ends_with_the_reason(upstream: Process) -> None:
    async with watching(upstream) as watch, opened(DirectResponses(upstream.addresses["upstream"])) as client:
        found = await chain(client, watch, 6)
    assert (found["turns"], found["messages"]) == (2, 1)
    assert "previous_response_not_found" in found["refused"]


# Who is left out


def odd(name: str, code: str) -> Gateway:
    return Gateway(name, lambda place: Launch((str(place.python), "-c", code)), patience=30.0)


async def measured(upstream: Process, *gateways: Gateway) -> Outcome:
    pythons = {each.name: Path(sys.executable) for each in gateways}
    plan = Plan({each.name: each for each in gateways}, pythons, [1024], requests=1, repeat=1)
    outcome = Outcome()
    await Campaign(plan, upstream, lambda what: None, outcome).run()
    return outcome


async def test_gateways_that_do_not_start_are_left_out_with_their_last_words(upstream: Process) -> None:
    outcome = await measured(
        upstream,
        odd("broken", "import sys; sys.exit('no licence')"),
        Gateway("missing", lambda place: Launch((place.tool("no-such-command"),))),
    )
    assert "ended with 1: no licence" in outcome.skipped["broken"]
    assert "no-such-command" in outcome.skipped["missing"]
    assert {each.cell.gateway for each in outcome.blocks} == set(DIRECT.values())


async def test_our_own_server_is_measured_as_a_gateway(upstream: Process) -> None:
    outcome = await measured(upstream, GATEWAYS["turnwire"])
    assert outcome.skipped == {}
    made = {(each["mode"], each["transport"]): each for each in lines(outcome.blocks, {"turnwire": "1"})}
    ways = {("unseen", "sse"), ("full", "sse"), ("chained", "sse"), ("chained", "ws"), ("chained", "grpc")}
    assert made.keys() == ways
    for line in made.values():
        assert (line["requests"], line["failed"], line["asks"]) == (1, 0, "chat")
        assert line["cpu_ms"] > 0
        assert line["memory_mb"] > 10
        assert "added_ttft_ms" in line


def test_a_gateway_that_cannot_be_installed_is_left_out_with_pips_words(tmp_path: Path) -> None:
    nowhere = f"turnwire-no-such-package @ file://{tmp_path}/nowhere-1.0-py3-none-any.whl"
    with pytest.raises(Unavailable, match="cannot be installed"):
        python_of(Gateway("nowhere", lambda place: Launch(()), (nowhere,)), tmp_path / "venvs")


def test_an_environment_that_is_there_is_used_and_one_for_another_version_is_not(tmp_path: Path) -> None:
    home = tmp_path / "some"
    home.mkdir()
    (home / "installed.json").write_text('["some==1"]', encoding="utf-8")
    assert python_of(Gateway("some", lambda place: Launch(()), ("some==1",)), tmp_path) == home / "bin" / "python"
    with pytest.raises(Unavailable):
        version_of(Gateway("some", lambda place: Launch(()), ("some==1",)), home / "bin" / "python")


def test_no_gateway_gets_our_environment_and_keys_are_made_for_the_run(tmp_path: Path) -> None:
    place = Place(Path("/venv/bin/python"), "http://127.0.0.1:1", 2, 3, tmp_path, "sk-once")
    for gateway in GATEWAYS.values():
        launch = gateway.launch(place)
        assert "sk-once" not in " ".join(launch.command)
        assert all("==" in each for each in gateway.requirements)
    assert "sk-once" not in (tmp_path / "litellm.yaml").read_text(encoding="utf-8")


# The command line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gateways", "turnwire,carrier-pigeon"), "no such gateway: carrier-pigeon"),
        (("--histories", "1KiB,much"), "--histories: "),
        (("--repeat", "1"), "--repeat: expected a number from 2"),
        (("--requests", "0"), "--requests: expected a number from 1"),
        (("--chain-only",), "--chain-only: how long"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert said in capsys.readouterr().err


def test_what_has_no_figures_is_told_among_what_is_left_out_and_not_among_the_lines() -> None:
    outcome = Outcome([Block(chained("smg", 1), 0, failures=["Failed: no"])], {"litellm": "not to be had"})
    figures = figures_of(outcome, {"smg": "1"}, [])
    assert figures["lines"] == []
    assert figures["skipped"] == {
        "litellm": "not to be had",
        "smg (chained over sse, 1 bytes)": "1 of 1 turns failed: Failed: no",
    }
