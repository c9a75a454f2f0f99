from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from turnwire.client.agent.process import command_environment, run_shell


async def first_line(fifo: Path) -> int:
    """Opens the pipe, waits for a line and returns the open end; bounded by the caller."""

    def open_and_read() -> int:
        descriptor = os.open(fifo, os.O_RDONLY)
        assert os.read(descriptor, 100) == b"up\n"
        return descriptor

    return await asyncio.to_thread(open_and_read)


async def closed_by_all(descriptor: int) -> bool:
    """Waits until every process that holds the writing end is gone."""
    try:
        return await asyncio.to_thread(os.read, descriptor, 100) == b""
    finally:
        os.close(descriptor)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


async def test_both_outputs_come_as_one_with_the_exit_code(tmp_path: Path) -> None:
    result = await run_shell("echo out; echo err >&2; exit 3", folder=tmp_path, timeout_seconds=30)
    assert (result.exit_code, result.output) == (3, "out\nerr\n")


async def test_the_command_starts_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    assert (await run_shell("ls", folder=tmp_path, timeout_seconds=30)).output == "here\n"


async def test_there_is_no_input_to_wait_for(tmp_path: Path) -> None:
    assert (await run_shell("cat; echo end", folder=tmp_path, timeout_seconds=30)).output == "end\n"


async def test_a_flood_of_output_is_bounded(tmp_path: Path) -> None:
    result = await run_shell(
        "echo begin; head -c 50000000 /dev/zero | tr '\\0' x; echo end",
        folder=tmp_path,
        timeout_seconds=60,
        max_output_bytes=1000,
    )
    assert result.output.startswith("begin\nxxx")
    assert result.output.endswith("xend\n")
    assert "[... 49999010 bytes left out ...]" in result.output
    assert len(result.output) < 1100


async def test_time_out_kills_the_whole_group_and_keeps_the_output(tmp_path: Path, fifo: Path) -> None:
    async with asyncio.timeout(20):
        result, descriptor = await asyncio.gather(
            run_shell("echo partial; (echo up; exec sleep 60) > fifo & sleep 60", folder=tmp_path, timeout_seconds=1),
            first_line(fifo),
        )
        assert result.timed_out
        assert result.output == "partial\n"
        assert await closed_by_all(descriptor)


async def test_cancellation_kills_the_whole_group(tmp_path: Path, fifo: Path) -> None:
    task = asyncio.create_task(
        run_shell("(echo up; exec sleep 60) > fifo & sleep 60", folder=tmp_path, timeout_seconds=60)
    )
    async with asyncio.timeout(20):
        descriptor = await first_line(fifo)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await closed_by_all(descriptor)


async def test_what_is_left_in_the_background_ends_with_the_command(tmp_path: Path, fifo: Path) -> None:
    async with asyncio.timeout(20):
        result, descriptor = await asyncio.gather(
            run_shell(
                "mkfifo go; (echo up; echo > go; exec sleep 60) > fifo & cat go; echo done",
                folder=tmp_path,
                timeout_seconds=60,
            ),
            first_line(fifo),
        )
        assert result.exit_code == 0
        assert result.output == "\ndone\n"
        assert await closed_by_all(descriptor)


async def test_a_process_that_left_the_group_does_not_hold_up_the_result(tmp_path: Path) -> None:
    program = "import os, time; os.setsid(); print(os.getpid(), flush=True); open('left', 'w').close(); time.sleep(30)"
    command = f'python -c "{program}" & until [ -e left ]; do :; done'
    async with asyncio.timeout(20):
        result = await run_shell(command, folder=tmp_path, timeout_seconds=15)
    os.kill(int(result.output), 9)
    assert result.exit_code == 0


async def test_a_shell_that_kills_itself_has_a_negative_exit_code(tmp_path: Path) -> None:
    assert (await run_shell("kill -9 $$", folder=tmp_path, timeout_seconds=30)).exit_code == -9


async def test_python_is_the_one_that_runs_this(tmp_path: Path) -> None:
    result = await run_shell("python -c 'import sys; print(sys.prefix)'", folder=tmp_path, timeout_seconds=30)
    assert result.output.strip() == sys.prefix


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "TOKEN",
        "aws_secret_access_key",
        "AWS_ACCESS_KEY_ID",
        "DB_PASSWORD",
        "X_SECRETS",
    ],
)
def test_variables_that_look_like_secrets_are_dropped(name: str) -> None:
    assert name not in command_environment({name: "x"})


def test_other_variables_stay() -> None:
    kept = {"HOME": "/h", "LANG": "C", "TOKENIZERS_PARALLELISM": "0", "KEYBOARD": "us", "MONKEY": "1"}
    assert kept.items() <= command_environment(kept).items()


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    await run_shell("true", folder=tmp_path, timeout_seconds=30)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await run_shell("true", folder=tmp_path, timeout_seconds=30)
        with pytest.raises(FileNotFoundError):
            await run_shell("true", folder=tmp_path / "gone", timeout_seconds=30)
    await asyncio.to_thread(lambda: None)
    assert len(os.listdir("/proc/self/fd")) <= before
