from __future__ import annotations

import io

import pytest
from rich.console import Console

from turnwire.client.agent import Outcome, Streamed, TokenCounts, ToolReport, TurnEnded, TurnReport, TurnStarted, totals
from turnwire.client.commands.progress import Progress, Watch, describe_call
from turnwire.client.commands.waterfall import bar, calls_of, totals_lines, waterfall
from turnwire.client.events import Event
from turnwire.v1.server_event_pb2 import OutputTextDelta, ServerEvent


def turn(
    number: int = 1,
    api: float = 0.0,
    inference: float = 0.0,
    client: float = 0.0,
    *tools: str,
    outcome: Outcome | None = None,
) -> TurnReport:
    return TurnReport(
        number=number,
        outcome=outcome or ("calls" if tools else "answer"),
        passes=1,
        started=0.0,
        wall=api + inference + client,
        api=api,
        inference=inference,
        client=client,
        queued=0.0,
        pre_inference=0.0,
        post_inference=0.0,
        hosted_tools=0.0,
        network=api,
        first_token=0.1,
        tokens=TokenCounts(100, 80, 51, 20),
        tools=tuple(ToolReport(f"call_{index}", name, "{}", 0.0, 0.1, 0.0, False) for index, name in enumerate(tools)),
    )


def show(reports: list[TurnReport], width: int, *, colour: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    console.print(waterfall(reports, console))
    return file.getvalue()


def test_without_colour_a_bar_has_a_letter_per_stage() -> None:
    assert bar(turn(1, 1.0, 2.0, 3.0), 6.0, 12, colour=False).plain == "AAiiiicccccc"
    assert bar(turn(1, 0.0, 2.0, 1.0), 6.0, 12, colour=False).plain == "iiiicc"


def test_with_colour_a_bar_is_exact_to_an_eighth_of_a_cell() -> None:
    text = bar(turn(1, 0.25, 0.75, 0.5), 1.5, 6, colour=True)
    assert text.plain == "██████"
    assert [str(span.style) for span in text.spans][:2] == ["red", "green"]
    assert bar(turn(1, 0.0, 0.5, 0.0), 4.0, 1, colour=True).plain == "▏"
    mixed = bar(turn(1, 0.5, 0.5, 0.0), 1.0, 1, colour=True)
    assert mixed.plain == "▌"
    assert str(mixed.spans[0].style) == "red on green"


def test_nothing_has_no_bar() -> None:
    assert bar(turn(), 0.0, 12, colour=True).plain == ""


@pytest.mark.parametrize("width", [80, 110, 200])
def test_the_table_fits_its_console_and_keeps_its_numbers_whole(width: int) -> None:
    text = show([turn(1, 0.0123, 0.2, 1.5, "read_file", "read_file", "run_command"), turn(2, 0.1, 1.0, 0.0)], width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "12.3" in text
    assert "1,500" in text
    assert "500" in text
    assert "read_file x2" in text
    assert "answer" in text


def test_tools_called_several_times_are_named_once() -> None:
    assert calls_of(turn(1, 0, 0, 0, "search", "read_file", "search")) == "search x2, read_file"


@pytest.mark.parametrize(
    ("tools", "outcome", "shown"),
    [
        ([], "answer", "answer"),
        (["look"], "calls", "look"),
        (["look"], "answer", "look, answer"),
        ([], "calls", "calls not run"),
        ([], "failed", "failed"),
        (["look"], "failed", "look, failed"),
        ([], "incomplete", "cut off"),
        ([], "cancelled", "cancelled"),
    ],
)
def test_only_an_answer_is_called_one(tools: list[str], outcome: Outcome, shown: str) -> None:
    assert calls_of(turn(1, 0, 0, 0, *tools, outcome=outcome)) == shown


def test_agents_in_lanes_say_how_they_ended() -> None:
    file = io.StringIO()
    one, two = Watch("one"), Watch("two")
    with Progress(Console(file=file, width=80), [one, two]):
        for watch in (one, two):
            watch.on_event(TurnEnded(turn(1, 0, 0, 0, "look")))
        one.on_event(TurnEnded(turn(2, outcome="answer")))
        two.on_event(TurnEnded(turn(2, outcome="failed")))
    assert file.getvalue() == "one has answered after 2 turns (0.00 s)\ntwo has ended (failed) after 2 turns (0.00 s)\n"


def test_totals_name_the_shares_of_the_stages() -> None:
    lines = [line.plain for line in totals_lines(totals([turn(1, 1.0, 2.0, 1.0, "search"), turn(2, 0.0, 4.0, 0.0)]))]
    assert lines[0] == "2 turns, 1 tool call"
    assert "102 tokens sampled (40 of them reasoning)" in lines[1]
    assert "API 1.00 s (12.5%), inference 6.00 s (75.0%), client 1.00 s (12.5%)" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"path": "a.py", "start_line": 3}', "tool a.py"),
        ('{"start_line": 3}', "tool"),
        ('{"command": "first\\nsecond"}', "tool first"),
        ("not JSON", "tool"),
        ('["a"]', "tool"),
        ("", "tool"),
    ],
)
def test_a_call_is_described_by_its_first_text(arguments: str, expected: str) -> None:
    assert describe_call("tool", arguments) == expected


def test_a_watch_tells_the_rate_of_the_current_pass() -> None:
    moments = iter([0.0, 0.1, 0.2, 0.3])
    watch = Watch("one", clock=lambda: next(moments))
    watch.on_event(TurnStarted(1))
    event = Event(ServerEvent(output_text_delta=OutputTextDelta(delta="x")), "output_text_delta")
    for _ in range(4):
        watch.on_event(Streamed(1, event))
    assert watch.tokens == 4
    assert watch.tokens_per_second == pytest.approx(10)
    assert watch.activity == "writing"
