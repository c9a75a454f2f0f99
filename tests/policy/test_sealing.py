"""What is sealed opens for whom it was sealed, with every key that is still known, and for nobody else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.sealing import Purpose, SealFileError, Seals, Unreadable

REASONING, COMPACTION = Purpose.REASONING, Purpose.COMPACTION
OLD, NEW = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
SEALED = Seals.parse(OLD).seal(REASONING, "a", b"secret")


@given(data=st.binary(max_size=200), principal=st.text(max_size=20))
def test_what_was_sealed_is_what_is_opened(data: bytes, principal: str) -> None:
    seals = Seals.fresh()
    assert seals.open(REASONING, principal, seals.seal(REASONING, principal, data)) == data


def test_the_same_data_is_never_sealed_to_the_same_text() -> None:
    seals = Seals.fresh()
    assert len({seals.seal(REASONING, "a", b"x") for _ in range(50)}) == 50


def test_another_process_with_the_same_key_opens_it() -> None:
    text = Seals.parse(OLD).seal(REASONING, "a", b"secret")
    assert Seals.parse(OLD).open(REASONING, "a", text) == b"secret"


def test_nobody_else_opens_it_and_not_as_something_else() -> None:
    seals = Seals.fresh()
    text = seals.seal(REASONING, "a", b"secret")
    assert seals.open(REASONING, "b", text) is Unreadable.DAMAGED
    assert seals.open(COMPACTION, "a", text) is Unreadable.DAMAGED


# The last character may hold bits that stand for nothing.
@given(at=st.integers(0, len(SEALED) - 2), char=st.sampled_from("ABCxyz019-_.=é"))
def test_changing_a_character_spoils_it(at: int, char: str) -> None:
    changed = SEALED[:at] + char + SEALED[at + 1 :]
    opened = Seals.parse(OLD).open(REASONING, "a", changed)
    assert opened == b"secret" if changed == SEALED else isinstance(opened, Unreadable)


@given(text=st.text(max_size=60) | st.text(alphabet="AZaz09-_", max_size=90).map("tws1.".__add__))
def test_any_text_is_foreign(text: str) -> None:
    assert Seals.parse(OLD).open(REASONING, "a", text) is Unreadable.FOREIGN


def test_the_newest_key_seals_and_all_of_them_open() -> None:
    before, after = Seals.parse(OLD), Seals.parse(f"# rotated\n{NEW}\n\n{OLD}\n")
    assert after.open(REASONING, "", before.seal(REASONING, "", b"x")) == b"x"
    assert before.open(REASONING, "", after.seal(REASONING, "", b"x")) is Unreadable.FOREIGN
    assert Seals.parse(NEW).open(REASONING, "", after.seal(REASONING, "", b"x")) == b"x"


def test_a_key_may_be_written_as_hex_or_in_either_base64() -> None:
    key = bytes(range(220, 252))
    forms = (key.hex(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("="))
    text = Seals.parse(forms[0]).seal(REASONING, "", b"x")
    assert [Seals.parse(form).open(REASONING, "", text) for form in forms] == [b"x"] * 3


@pytest.mark.parametrize("bad", ["short", "x" * 44, "é" * 44, base64.b64encode(bytes(range(31))).decode(), "g" * 64])
def test_a_bad_line_is_named_and_not_shown(bad: str) -> None:
    with pytest.raises(SealFileError) as caught:
        Seals.parse(f"{OLD}\n{bad}", "keys.txt")
    assert str(caught.value).startswith("keys.txt:2: expected a key of 32 bytes")
    assert bad not in str(caught.value)


@pytest.mark.parametrize(("text", "says"), [("# nothing\n", "holds no keys"), (f"{OLD}\n{OLD}", ":2: the same key as")])
def test_a_file_without_keys_or_with_one_twice_is_refused(text: str, says: str) -> None:
    with pytest.raises(SealFileError, match=says):
        Seals.parse(text)


def test_a_file_is_read_and_one_that_everybody_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "seal.key"
    path.write_text(OLD)
    path.chmod(0o644)
    Seals.load(path)
    assert "can be read by everybody" in caplog.text
    assert OLD not in caplog.text
    with pytest.raises(SealFileError, match="cannot be read"):
        Seals.load(tmp_path / "none")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SealFileError, match="not UTF-8"):
        Seals.load(path)


def test_keys_do_not_show(tmp_path: Path) -> None:
    assert repr(Seals.parse(OLD)) == "<Seals of 1 keys>"
