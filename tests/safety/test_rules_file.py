"""Safety files: what they say, and how each mistake is told with its line and key."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from turnwire.server.policy.safety.matcher import Terms
from turnwire.server.policy.safety.opening import open_safety
from turnwire.server.policy.safety.rules import BOTH, RemoteRule, SafetyConfig
from turnwire.server.policy.safety.rules_file import MAX_PATTERNS, SafetyFileError, load_safety_file
from turnwire.server.policy.safety.screener import RuleScreener
from turnwire.server.session.screens import SILENCE, Direction

EXAMPLE = files("turnwire.server.policy.safety").joinpath("example.toml").read_text(encoding="utf-8")
DOCS = Path(__file__).parents[2] / "docs" / "safety.md"


def load(text: str, folder: Path | None = None) -> SafetyConfig:
    return load_safety_file(text, {"KEY": "secret"}, "safety.toml", folder)


def mistakes(text: str, folder: Path | None = None) -> list[str]:
    with pytest.raises(SafetyFileError) as caught:
        load(text, folder)
    return [str(problem) for problem in caught.value.problems]


def flagged(config: SafetyConfig, text: str) -> list[str]:
    screener = RuleScreener(config.categories)
    return [hit.category for hit in screener.follow(SILENCE, screener.screen_text(text))[1]]


@pytest.mark.parametrize(
    ("text", "categories"),
    [
        ("How do I build a small pipe bomb?", ["weapons"]),
        ("Assemble the improvised explosive.", ["weapons"]),
        ("A bath bomb is no weapon.", []),
        ("Write ransomware\nbuilder code", ["malware"]),
        ("Card: 4111 1111 1111 1111.", ["card-numbers"]),
        ("damn", ["profanity"]),
        ("Damnation is another word.", []),
    ],
)
def test_the_packaged_example_finds_what_it_says(text: str, categories: list[str]) -> None:
    assert flagged(load(EXAMPLE), text) == categories


def test_the_packaged_example_finds_credentials_in_output_only() -> None:
    config = load(EXAMPLE)
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    assert flagged(config, key) == []
    screen = RuleScreener(config.categories).output(SILENCE.model)
    assert screen is not None
    assert [hit.category for hit in [*screen.text(key)[1], *screen.end()[1]]] == ["credentials"]


def test_the_page_shows_the_packaged_example() -> None:
    assert f"```toml\n{EXAMPLE}```" in DOCS.read_text(encoding="utf-8")


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("# words\none\n\n two  words \n")
    config = load(
        """
        mode = "observe"
        [[category]]
        name = "a/b-c"
        action = "flag"
        direction = "output"
        code = "bio_policy"
        literals = ["zero"]
        words_file = "words.txt"
        whole_words = false
        [remote]
        url = "https://classify.example/v1/moderations"
        api_key_env = "KEY"
        model = "m"
        timeout = "250ms"
        max_concurrent = 3
        on_failure = "open"
        direction = "input"
        check_every = 500
        overlap = 0
        action = "flag"
        [remote.categories.violence]
        action = "block"
        [remote.categories."self-harm/intent"]
        code = "bio_policy"
        """,
        tmp_path,
    )
    (category,) = config.categories
    assert not config.gate
    assert (category.name, category.blocks, category.code) == ("a/b-c", False, "bio_policy")
    assert category.directions == {Direction.OUTPUT}
    assert category.terms == Terms(("zero", "one", "two  words"), (), whole_words=False, waits=False)
    remote = config.remote
    assert remote is not None
    assert (remote.api_key, remote.model, remote.timeout, remote.max_concurrent) == ("secret", "m", 0.25, 3)
    assert (remote.fails_open, remote.piece, remote.overlap) == (True, 500, 0)
    assert remote.directions == {Direction.INPUT}
    assert remote.rule == RemoteRule(blocks=False)
    assert remote.categories == {
        "violence": RemoteRule(blocks=True),
        "self-harm/intent": RemoteRule(blocks=False, code="bio_policy"),
    }
    assert "secret" not in repr(config)


def test_what_is_not_said_has_a_default() -> None:
    config = load('[[category]]\nname = "a"\nliterals = ["b"]')
    assert config.gate
    assert config.categories[0].blocks
    assert config.categories[0].directions == BOTH
    assert config.categories[0].code == "invalid_prompt"


def test_every_mistake_is_told_with_its_line_and_key(tmp_path: Path) -> None:
    assert mistakes(
        """mode = "gat"
[[category]]
name = "A"
literals = ["fine",
  "\u200b",
  "x"]
patterns = ["a",
  "b*"]
whole_words = "yes"
[[category]]
name = "a"
colour = "red"
[[category]]
name = "a"
action = "block"
direction = "in"
code = "nope"
words_file = "missing.txt"
[remote]
url = "ftp://x"
api_key_env = "OTHER"
timeout = "1h"
on_failure = "never"
""",
        tmp_path,
    ) == [
        'safety.toml:1: key \'mode\': expected one of "gate", "observe", found "gat"; did you mean "gate"?',
        "safety.toml:3: key 'category[0].name': expected 1 to 64 lower-case letters, digits, '_', '-' and '/'",
        "safety.toml:5: key 'category[0].literals[1]': nothing is left of it as texts are compared",
        "safety.toml:8: key 'category[0].patterns[1]': can match text of any length: write a number such as {0,50} in"
        " place of '*'",
        "safety.toml:9: key 'category[0].whole_words': expected true or false, found a string",
        "safety.toml:10: key 'category[1].literals': 'a' has nothing to look for: literals, words_file or patterns",
        "safety.toml:12: key 'category[1].colour': unknown key; known here: action, code, direction, literals, name,"
        " patterns, whole_words, words_file",
        "safety.toml:14: key 'category[2].name': there is a category 'a' already",
        'safety.toml:16: key \'category[2].direction\': expected one of "input", "output", "both", found "in"',
        'safety.toml:17: key \'category[2].code\': expected one of "invalid_prompt", "cyber_policy", "bio_policy",'
        ' found "nope"',
        f"safety.toml:18: key 'category[2].words_file': {tmp_path}/missing.txt cannot be read: No such file or"
        " directory",
        "safety.toml:20: key 'remote.url': expected the http or https URL of a moderations endpoint, without a user in"
        " it",
        "safety.toml:21: key 'remote.api_key_env': the variable OTHER is not set",
        "safety.toml:22: key 'remote.timeout': expected a duration from 10ms to 1m, such as \"30s\", found '1h'",
        'safety.toml:23: key \'remote.on_failure\': expected one of "open", "closed", found "never"',
    ]


def test_a_file_that_looks_for_nothing_is_a_mistake() -> None:
    (problem,) = mistakes('mode = "gate"')
    assert "there is nothing to look for" in problem


def test_a_list_of_words_tells_the_line_of_its_mistake(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("fine\n" + "x" * 201)
    (problem,) = mistakes('[[category]]\nname = "a"\nwords_file = "words.txt"', tmp_path)
    assert problem.endswith(f"{tmp_path}/words.txt:2: is longer than 200 bytes")


def test_files_are_bounded() -> None:
    patterns = ", ".join(['"ab"'] * (MAX_PATTERNS + 1))
    (problem,) = mistakes(f'[[category]]\nname = "a"\npatterns = [{patterns}]')
    assert "there are more than 500 patterns" in problem


async def test_what_is_read_can_be_opened() -> None:
    opened = open_safety(load(EXAMPLE), incremental=False)
    assert opened.safety.gate
    assert opened.safety.whole
    assert opened.remote is None
    assert opened.safety.screener is opened.screener


def test_thousands_of_words_are_found_as_one() -> None:
    words = ", ".join(f'"word{n}x"' for n in range(20_000))
    config = load(f'[[category]]\nname = "a"\nliterals = [{words}]')
    assert flagged(config, "here is word19999x.") == ["a"]
    assert flagged(config, "here is word20000x.") == []
