from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

import pytest

from turnwire.server.keys import ANONYMOUS, KeyFileError, KeyRing, authenticate
from turnwire.v1.errors import RequestError

ALICE = "k3y-of-alice-0123456789"
BOB = "k3y-of-bob-0123456789xyz"


def test_a_key_says_who_is_calling() -> None:
    ring = KeyRing.parse(f"# people\n\nalice:{ALICE}\r\n bob : {BOB} \n{ALICE}2\n")

    assert ring.authenticate(f"Bearer {ALICE}") == "alice"
    assert ring.authenticate(f"bearer  {BOB}") == "bob"
    assert ring.authenticate(f"Bearer {ALICE}2") == hashlib.sha256(f"{ALICE}2".encode()).hexdigest()[:12]
    assert len(ring) == 3
    assert ring.principals >= {"alice", "bob"}


def test_several_keys_may_belong_to_one_principal() -> None:
    ring = KeyRing.parse(f"alice:{ALICE}\nalice:{BOB}")

    assert ring.authenticate(f"Bearer {BOB}") == "alice"
    assert ring.principals == {"alice"}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        ALICE,
        f"Basic {ALICE}",
        f"Bearer {ALICE} x",
        "Bearer wrong",
        "Bearer \udcff\u2603",
    ],
)
def test_a_missing_or_wrong_key_is_refused_without_echoing_it(header: str | None) -> None:
    ring = KeyRing.parse(f"alice:{ALICE}")

    with pytest.raises(RequestError) as caught:
        ring.authenticate(header)

    assert caught.value.error.code == "invalid_api_key"
    assert ALICE not in caught.value.error.message
    assert "wrong" not in caught.value.error.message


def test_without_a_ring_everybody_is_anonymous() -> None:
    assert authenticate(None, None) == ANONYMOUS
    assert authenticate(None, "Bearer whatever") == ANONYMOUS
    assert authenticate(KeyRing.parse(f"alice:{ALICE}"), f"Bearer {ALICE}") == "alice"


def test_all_keys_are_compared_whichever_one_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = KeyRing.parse(f"alice:{ALICE}\nbob:{BOB}\ncarol:{BOB}2")
    compared: list[int] = []
    compare = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(len(other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    ring.authenticate(f"Bearer {ALICE}")

    assert compared == [32, 32, 32]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"alice:{ALICE}\n\nb ob:{BOB}", "<keys>:3: a principal is"),
        (f":{ALICE}", "<keys>:1: a principal is"),
        (f"{'x' * 65}:{ALICE}", "<keys>:1: a principal is"),
        ("alice:short", "<keys>:1: a key is 8 to 512"),
        ("alice:with a space", "<keys>:1: a key is"),
        ("alice:with:a:colon", "<keys>:1: a key is"),
        ("alice:schl\u00fcssel-123", "<keys>:1: a key is"),
        (f"alice:{ALICE}\nbob:{ALICE}", "<keys>:2: the same key as in line 1"),
        ("# nothing\n", "<keys>: holds no keys"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(text: str, message: str) -> None:
    with pytest.raises(KeyFileError) as caught:
        KeyRing.parse(text)

    assert str(caught.value).startswith(message)
    for secret in (ALICE, BOB, "short", "with", "schl"):
        assert secret not in str(caught.value).replace("without", "")


def test_a_file_is_read_and_warned_about_when_everybody_can_read_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(f"\ufeffalice:{ALICE}\n", encoding="utf-8")
    path.chmod(0o644)

    with caplog.at_level(logging.WARNING):
        ring = KeyRing.load(path)

    assert ring.authenticate(f"Bearer {ALICE}") == "alice"
    assert ["can be read by everybody" in record.getMessage() for record in caplog.records] == [True]
    caplog.clear()
    path.chmod(0o600)
    KeyRing.load(path)
    assert not caplog.records


def test_a_short_key_is_warned_about_without_showing_it(caplog: pytest.LogCaptureFixture) -> None:
    KeyRing.parse("alice:test-key")

    assert "short enough to be guessed" in caplog.text
    assert "test-key" not in caplog.text


def test_a_file_that_cannot_be_read_is_refused_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"secret-\xff")

    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), (tmp_path / "binary", "UTF-8")):
        with pytest.raises(KeyFileError, match=reason) as caught:
            KeyRing.load(path)
        assert "secret" not in str(caught.value)


def test_a_ring_does_not_show_its_keys() -> None:
    assert repr(KeyRing.parse(f"alice:{ALICE}")) == "<KeyRing of 1 keys>"
