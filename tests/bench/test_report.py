"""The report of a folder: what is in it, what is said to be missing, and that it is the same every time.

All figures are invented; see `report_samples`.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.bench.report_samples import DATE, costs, measured, others, rollouts, write_everything

from turnwire.bench.folder import read_folder
from turnwire.bench.measured import write
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.__main__ import main
from turnwire.bench.report.answer import compared, multiple, per_token, verdict
from turnwire.bench.report.building import build
from turnwire.bench.report.document import Document, Section, Table, Words
from turnwire.bench.report.markdown import markdown
from turnwire.bench.report.page import page
from turnwire.bench.report.plots.style import COLOURS, look, spread
from turnwire.bench.report.wording import interval, number, percent, percents
from turnwire.bench.report.writing import write_report

SECTIONS = (
    "answer",
    "budgets",
    "does-it-matter",
    "end-to-end",
    "overhead",
    "stages",
    "tokens",
    "turns",
    "pace",
    "ablation",
    "memory",
    "peers",
    "appendix",
)
PICTURES = {
    "end-to-end-invented",
    "overhead",
    "stages",
    "tokens-server",
    "tokens-client",
    "tokens-bytes",
    "turns",
    "ablation",
    "memory-kept",
    "memory-idle-0",
    "memory-soak",
    "peers",
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a folder that has everything, beside its files."""
    folder = tmp_path_factory.mktemp("results")
    write_everything(folder)
    write_report(read_folder(folder), folder)
    return folder


def report(folder: Path) -> str:
    return markdown(build(read_folder(folder)))


def section(text: str, title: str) -> str:
    """Returns the Markdown of one section."""
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return next(part for part in parts if part.startswith(f"{title}\n"))


def test_a_folder_with_everything_gives_every_section_and_every_plot(full: Path) -> None:
    text = (full / "report.md").read_text(encoding="utf-8")
    assert re.findall(r'<a id="([^"]+)">', text) == list(SECTIONS)
    assert {path.stem for path in full.glob("*.svg")} >= PICTURES
    for name in PICTURES:
        assert f"({name}.svg)" in text
        assert f'<figure id="plot-{name}">' in (full / "report.html").read_text(encoding="utf-8")


def test_every_file_is_named_with_command_date_machine_and_load(full: Path) -> None:
    text = (full / "report.md").read_text(encoding="utf-8")
    page_ = (full / "report.html").read_text(encoding="utf-8")
    for kind in others():
        assert f"`python -m turnwire.bench.{kind} --invented` ({kind}.json; {DATE}; load 0.5 before, 0.8" in text
        assert f"<code>python -m turnwire.bench.{kind} --invented</code>" in page_
    assert "invented, 2 cores, Linux, Python 3.11, grpcio 1.85" in text


def test_the_page_needs_nothing_from_outside(full: Path) -> None:
    page_ = (full / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://[^\s\"'<>]+", page_)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"<(?:script|link|img|iframe|object)\b", page_)
    assert not re.findall(r"@import|url\((?!#)", page_)


def test_no_two_elements_of_the_page_have_the_same_id(full: Path) -> None:
    ids = re.findall(r'\bid="([^"]+)"', (full / "report.html").read_text(encoding="utf-8"))
    assert len(ids) == len(set(ids))


def test_every_reference_within_a_plot_leads_to_something_in_it(full: Path) -> None:
    for path in full.glob("*.svg"):
        root = ElementTree.parse(path).getroot()
        ids = {element.get("id") for element in root.iter()}
        text = path.read_text(encoding="utf-8")
        used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
        assert used
        assert set(used) <= ids
        assert root.get("aria-label")


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    write(others()["turns"], tmp_path / "turns.json")
    write(rollouts({"rtt": "50ms"}), tmp_path / "rollouts.json")
    first, second = tmp_path / "first", tmp_path / "second"
    for out in (first, second):
        write_report(read_folder(tmp_path), out)
    assert len(list(first.iterdir())) > 4
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


def test_what_was_not_measured_is_said_with_the_command_that_measures_it(tmp_path: Path) -> None:
    text = report(tmp_path)
    for title, command in (
        ("End to end", "python -m turnwire.bench.run codex-fix"),
        ("Turn overhead against history", "python -m turnwire.bench.run long-history"),
        ("Where the time of a turn goes", "python -m turnwire.bench.run codex-fix"),
        ("Processor time and bytes for each token", "python -m turnwire.bench.doors"),
        ("Server work of a continued turn", "python -m turnwire.bench.turns"),
        ("Keeping a fast model's pace", "python -m turnwire.bench.pace"),
        ("What each optimization is worth", "python -m turnwire.bench.ablation"),
        ("Memory", "python -m turnwire.bench.memory"),
        ("Against other gateways", "make bench-peers"),
    ):
        assert f"Not measured: run `{command}" in section(text, title)


@pytest.mark.parametrize("kind", list(others()))
def test_one_kind_alone_gives_its_section_and_leaves_the_others_missing(tmp_path: Path, kind: str) -> None:
    write(others()[kind], tmp_path / "one.json")
    document = build(read_folder(tmp_path))
    told = [each.anchor for each in document.sections if any(source == "one.json" for source in _sources(each))]
    assert told == [{"doors": "tokens", "soak": "memory"}.get(kind, kind)]


def _sources(of: Section) -> list[str]:
    return [source.file for block in of.blocks for source in getattr(block, "sources", ())]


def test_a_broken_file_and_a_foreign_one_are_named_with_their_reasons(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"kind": "turns"')
    (tmp_path / "foreign.json").write_text('{"kind": "recipe"}')
    write(measured("turns", {"items": "none"}), tmp_path / "odd.json")
    unknown = rollouts({"gravity": "9.8"})
    write(unknown, tmp_path / "unknown.json")
    appendix = section(report(tmp_path), "How it was measured, and all figures")
    for name, reason in (
        ("cut.json", "truncated"),
        ("foreign.json", "recipe"),
        ("odd.json", "figures of kind turns"),
        ("unknown.json", "found gravity"),
    ):
        assert re.search(rf"^\| {name} \| .*{reason}", appendix, flags=re.MULTILINE)


def test_a_measurement_that_did_not_end_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    cut = others()["doors"]
    cut.ended = "KeyboardInterrupt"
    write(cut, tmp_path / "doors.json")
    text = report(tmp_path)
    assert "Not measured" in section(text, "Processor time and bytes for each token")
    assert "| doors.json | it did not come to its end: KeyboardInterrupt |" in text


def test_rollouts_that_did_not_end_keep_their_figures_and_are_marked(tmp_path: Path) -> None:
    cut = rollouts({})
    cut.ended = "died during the run: server"
    cut.runs[0].record.failure = "died"
    write(cut, tmp_path / "cut.json")
    text = report(tmp_path)
    assert "**not whole: died during the run: server**" in section(text, "End to end")
    assert "- grpc-append, repetition 1: died" in text


def test_a_gateway_that_drops_history_and_one_that_could_not_be_had_are_named(full: Path) -> None:
    peers = section((full / "report.md").read_text(encoding="utf-8"), "Against other gateways")
    assert "| other | 200 | 199 of 399 | **no, from turn 101 on** |" in peers
    assert "| turnwire | 200 | 399 of 399 | yes |" in peers
    assert "- third: does not install on Python 3.11" in peers


def test_one_run_alone_is_shown_and_not_judged(tmp_path: Path) -> None:
    write(rollouts({}, repeat=1), tmp_path / "one.json")
    text = report(tmp_path)
    assert "one run: 74.3%" in section(text, "End to end")
    assert "which gives no interval" in section(text, "The short answer")


def test_where_grpc_loses_is_said_in_the_same_words_as_where_it_wins(tmp_path: Path) -> None:
    slow = {"grpc-append": 0.3, "ws-append": 0.0, "http-full": 1.0}
    write(rollouts({}, slow, scenario="codex-fix"), tmp_path / "slow.json")
    answer = section(report(tmp_path), "The short answer")
    assert re.search(r"append over gRPC is \*\*63% faster\*\* .* than HTTP with the whole history", answer)
    assert re.search(r"\*\*\d+% slower\*\* \(.*\) than append over the official WebSocket", answer)
    assert "loses against append over the official WebSocket in: codex-fix at 1,000 tokens/s, RTT 0 ms by" in answer


def test_that_the_gain_is_not_grpcs_is_said_only_where_figures_say_it(tmp_path: Path) -> None:
    even = {"grpc-append": 0.0, "native-append": 0.0}
    write(rollouts({}, {**even, "http-full": 0.3}), tmp_path / "one.json")
    assert "not gRPC as such" in section(report(tmp_path), "The short answer")
    write(rollouts({}, {**even, "http-full": 0.0}), tmp_path / "one.json")
    assert "not gRPC as such" not in section(report(tmp_path), "The short answer")
    write(rollouts({}, {"grpc-append": 0.0, "native-append": 0.3}), tmp_path / "one.json")
    assert "gRPC wins in 1 and loses in 0" in section(report(tmp_path), "The short answer")


def test_text_of_result_files_is_no_html_and_no_table_of_its_own() -> None:
    table = Table(("a", "b"), [("<script>alert(1)</script>", "x | y\nz")], words=True)
    document = Document("t", [Section("s", "S", [Words("<b>bold</b>"), table])])
    assert "<script>" not in page(document)
    assert "&lt;b&gt;" in page(document)
    assert "x \\| y z |" in markdown(document)


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (Interval(0.42, 0.40, 0.44), "wins"),
        (Interval(-0.42, -0.44, -0.40), "loses"),
        (Interval(0.03, 0.02, 0.04), "even"),
        (Interval(0.2, -0.1, 0.5), "even"),
        (Interval(0.2, -math.inf, math.inf), "unsure"),
    ],
    ids=["wins", "loses", "too-small", "within-noise", "one-run"],
)
def test_a_difference_is_judged_by_its_interval_and_by_whether_it_matters(figure: Interval, expected: str) -> None:
    assert verdict(figure) == expected


def test_a_comparison_has_its_interval_in_the_direction_of_its_word() -> None:
    assert compared("X", Interval(0.42, 0.4, 0.44)) == "**42% faster** (40% to 44%) than X"
    assert compared("X", Interval(-0.42, -0.44, -0.4)) == "**42% slower** (40% to 44%) than X"
    assert "(2.0% slower, \u22121.0% to 3.0%)" in compared("X", Interval(-0.02, -0.03, 0.01))


def test_costs_of_tokens_are_multiples_by_responses_at_once_and_the_smaller_wins() -> None:
    rows = per_token([cost for cost in costs() if not cost.parsed])
    assert rows[0][1:] == ("1", "16", "200")
    assert rows[1][:2] == ("server CPU, against WebSocket, 16 lanes a socket", "loses: 1.5\u00d7")
    assert any(row[0].startswith("bytes, against WebSocket, 16") and row[1] == "wins: 0.14\u00d7" for row in rows)
    assert (multiple(1.0, 1.01), multiple(1.0, 0.0)) == ("even: 0.99\u00d7", "")
    assert per_token([]) == []


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (0, 0.01234, 1.2345, 123.45, 12345.6)] == [
        "0",
        "0.0123",
        "1.23",
        "123",
        "12,346",
    ]
    assert number(-2.5) == "\u22122.50"
    assert (percent(0.4211), percent(-0.012)) == ("42%", "1.2%")
    assert interval(Interval(1.0, -math.inf, math.inf)) == "1.00"
    assert interval(Interval(0.5, 0.4, 0.6), 100, 2) == "50 (40 to 60)"
    assert percents(Interval(-0.0123, -0.02, 0.001)) == "\u22121.2% (\u22122.0 to 0.1)"
    assert percents(Interval(-0.0001, -0.0002, 0.0001)) == "0.0% (0.0 to 0.0)"
    assert percents(Interval(0.5, -math.inf, math.inf)) == "50.0%"


def test_labels_keep_their_order_and_a_gap_within_the_borders() -> None:
    assert spread([10, 90], 10, 0, 100) == [10, 90]
    placed = spread([50, 50, 50], 10, 0, 100)
    assert sorted(placed) == [40, 50, 60]
    assert spread([1, 0, 2], 10, 0, 100) == [10, 0, 20]
    assert spread([99, 98], 10, 0, 100) == [100, 90]
    assert spread([5, 5, 5], 100, 0, 100) == [0, 50, 100]


def test_transports_have_colours_and_shapes_have_lines_of_their_own() -> None:
    drivers = ("grpc-append", "ws-append", "http-full", "native-append", "bridge")
    assert len({look(name).colour for name in drivers}) == len(drivers)
    assert look("grpc-create").colour == look("grpc-append").colour
    assert look("grpc-create").line != look("grpc-append").line
    assert look("WebSocket `turnwire.v1`, one socket").colour == look("native-append").colour


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("time", [0, 1], ids=["day", "night"])
def test_every_colour_that_text_has_can_be_read(time: int) -> None:
    for name in ("ink", "quiet", "grpc", "http", "websocket", "native", "bridge", "other", "gain", "loss"):
        assert contrast(COLOURS[name][time], COLOURS["paper"][time]) >= 4.5, name


def test_the_command_writes_the_report_and_names_what_it_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.json").write_text("{")
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path), "--out", str(tmp_path / "out")])
    assert main() == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "out" / "report.html")
    assert "cut.json could not be read" in said.err
    assert (tmp_path / "out" / "report.md").exists()


def test_a_folder_that_is_not_there_ends_the_command_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "nowhere")])
    assert main() == 2
    assert "nowhere" in capsys.readouterr().err
