"""Rules that change while the server runs: what is in force, and that nothing is looked at again for it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turnwire.server.guarding import RulesReload
from turnwire.server.policy.safety.opening import open_safety
from turnwire.server.policy.safety.rules_file import load_safety_file
from turnwire.server.session.screens import SILENCE

OLD = '[[category]]\nname = "old"\nliterals = ["teapot"]\n'
NEW = '[[category]]\nname = "new"\nliterals = ["coffee pot"]\n'


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "safety.toml"
    path.write_text(OLD)
    return path


async def test_rules_that_are_read_again_are_in_force_and_go_on_from_what_was_said(path: Path) -> None:
    config = load_safety_file(path, {})
    rules = open_safety(config).screener
    assert rules is not None
    overlap, hits = rules.follow(SILENCE, rules.screen_text("a coffee"))
    assert not hits
    before = rules.version
    write(path, NEW)
    assert await RulesReload(path, {}, config, rules).reload()
    assert rules.version != before
    assert [hit.category for hit in rules.follow(overlap, rules.screen_text("pot, no teapot"))[1]] == ["new"]


async def test_output_that_is_looked_at_goes_on_by_the_rules_it_began_with(path: Path) -> None:
    config = load_safety_file(path, {})
    rules = open_safety(config).screener
    assert rules is not None
    screen = rules.output(SILENCE.model)
    assert screen is not None
    write(path, NEW)
    assert await RulesReload(path, {}, config, rules).reload()
    assert [hit.category for hit in screen.text("a teapot.")[1]] == ["old"]


async def test_a_file_with_mistakes_changes_nothing_and_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load_safety_file(path, {})
    rules = open_safety(config).screener
    assert rules is not None
    write(path, '[[category]]\nname = "new"\npatterns = ["a*"]\n')
    assert not await RulesReload(path, {}, config, rules).reload()
    assert "safety.toml:3: key 'category[0].patterns[0]'" in caplog.text
    assert [hit.category for hit in rules.follow(SILENCE, rules.screen_text("teapot"))[1]] == ["old"]


async def test_what_needs_a_new_start_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    config = load_safety_file(path, {})
    rules = open_safety(config).screener
    write(path, 'mode = "observe"\n' + NEW)
    assert await RulesReload(path, {}, config, rules).reload()
    assert "they need a new start" in caplog.text
    write(path, '[remote]\nurl = "http://127.0.0.1:9/"\n')
    assert not await RulesReload(path, {}, config, rules).reload()
    assert "gone altogether need a new start" in caplog.text


async def test_instructions_are_looked_at_again_by_new_rules_only(path: Path) -> None:
    config = load_safety_file(path, {})
    first, again = open_safety(config).screener, open_safety(config).screener
    assert first is not None
    assert again is not None
    assert first.version == again.version
    write(path, NEW)
    other = open_safety(load_safety_file(path, {})).screener
    assert other is not None
    assert other.version != first.version
