"""The report's page in a real Chromium, Debian's package: by day and by night, on a phone and on a desk.

Figures are invented; see `tests.bench.report_samples`. With TURNWIRE_REPORT_SHOTS=DIR, screenshots of whole pages are
left there to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.bench.report_samples import write_everything

from turnwire.bench.folder import read_folder
from turnwire.bench.report.writing import write_report

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESK = 400, 1280
WIDER = """() => [...document.body.querySelectorAll('*')]
    .filter(each => !each.closest('.scroll') || each.matches('.scroll'))
    .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
    .map(each => each.outerHTML.slice(0, 120))"""
"""What sticks out of the window; what scrolls within itself may be wider inside."""
CUT_OFF = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const outer = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const inner = text.getBoundingClientRect();
        return inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1
            || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1);
    }).map(text => text.textContent);
})"""
"""Texts of plots that their border cuts."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write_everything(folder)
    return write_report(read_folder(folder), folder)


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("expected Debian's package chromium to be installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_is_whole_and_asks_for_nothing(
    report: Path, browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    with browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(report.as_uri())
        page.evaluate("() => document.querySelectorAll('details').forEach(each => each.open = true)")
        _keep(page, f"{width}-{scheme}")
        assert said == []
        assert asked == [report.as_uri()]
        assert page.evaluate("() => document.documentElement.scrollWidth") == width
        assert page.evaluate(WIDER) == []
        assert page.evaluate(CUT_OFF) == []
        sizes: list[list[float]] = page.evaluate(
            "() => [...document.querySelectorAll('svg')].map(each => each.getBoundingClientRect())"
            ".map(box => [box.width, box.height])"
        )
        assert len(sizes) >= 12
        assert all(wide >= 300 and high >= 60 for wide, high in sizes)


def test_contents_lead_to_every_section_and_each_has_its_heading(report: Path, browser: Browser) -> None:
    with browser.new_page() as page:
        page.goto(report.as_uri())
        links: list[str] = page.evaluate("() => [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
        headed: list[str] = page.evaluate(
            "() => [...document.querySelectorAll('section')]"
            ".filter(each => each.querySelector('h2').innerText).map(each => each.id)"
        )
        assert page.locator("h1").count() == 1
        assert links == headed
        assert len(links) >= 13


def test_colours_of_plots_follow_the_page_by_night(report: Path, browser: Browser) -> None:
    colours: list[str] = []
    for scheme in ("light", "dark"):
        with browser.new_page(color_scheme=scheme) as page:
            page.goto(report.as_uri())
            colours.append(page.evaluate("() => getComputedStyle(document.querySelector('svg text')).fill"))
    assert colours[0] != colours[1]


def test_where_grpc_loses_stands_in_the_same_type_size_as_where_it_wins(report: Path, browser: Browser) -> None:
    with browser.new_page() as page:
        page.goto(report.as_uri())
        sizes: list[list[str]] = page.evaluate(
            "() => ['wins:', 'loses:'].map(word => [...new Set([...document.querySelectorAll('#answer td')]"
            ".filter(cell => cell.innerText.startsWith(word)).map(cell => getComputedStyle(cell).fontSize))])"
        )
        assert len(sizes[0]) == 1
        assert sizes[0] == sizes[1]


def _keep(page: Page, name: str) -> None:
    if folder := os.environ.get("TURNWIRE_REPORT_SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
