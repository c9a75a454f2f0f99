from __future__ import annotations

import asyncio
import os
import signal

import pytest

from turnwire.client import AuthenticationError, ConnectError, TurnwireError
from turnwire.client.commands.ending import run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectError("nobody is there"), 3),
        (TurnwireError("something failed"), 1),
    ],
)
def test_errors_become_a_sentence_and_an_exit_code(
    error: TurnwireError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        raise error

    with pytest.raises(SystemExit) as exit_:
        run(work())
    assert exit_.value.code == code
    assert capsys.readouterr().err == f"Error: {error}\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "You didn't provide an API key. Send it in the authorization header, as 'Bearer KEY'.",
            "You didn't provide an API key",
        ),
        ("Incorrect API key provided.", "Incorrect API key provided"),
    ],
)
def test_who_has_no_access_is_told_the_flags_not_the_headers(
    said: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        raise AuthenticationError(said)

    with pytest.raises(SystemExit) as exit_:
        run(work())
    assert exit_.value.code == 3
    advice = "give the key by --api-key-file, --api-key or TURNWIRE_API_KEY"
    assert capsys.readouterr().err == f"Error: no access: {shown}; {advice}\n"


def test_a_termination_signal_lets_the_work_clean_up() -> None:
    cleaned: list[bool] = []

    async def work() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return 0

    with pytest.raises(SystemExit) as exit_:
        run(work())
    assert exit_.value.code == 143
    assert cleaned == [True]
