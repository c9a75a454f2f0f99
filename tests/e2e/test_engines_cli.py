"""The command lines of docs/engines.md, each as a process of its own in front of a fake of its upstream."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwire.client import RequestRejectedError, connect
from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.model import find_model
from turnwire.server.models.specs import ENGINES
from turnwire.server.prompt import vocabulary

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
COMMANDS: list[str] = re.findall(r"```sh\nturnwire (serve .*)\n```", PAGE)
REGISTRY: str = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
BOUND = 30.0
KEY = "secret-of-the-upstream"
HARMONY = vocabulary.encoding().encode("<|channel|>final<|message|>From tokens.<|return|>", allowed_special="all")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Fake = Callable[..., Awaitable[str]]


def command(*words: str) -> str:
    """The one command line of the page that has these words and no other options."""
    found = [line for line in COMMANDS if set(words) <= set(shlex.split(line))]
    return min(found, key=len)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    return kept | {"UPSTREAM_KEY": KEY}


@asynccontextmanager
async def started(*arguments: str, cwd: Path) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
        cwd=cwd,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def serving(line: str, cwd: Path) -> AsyncGenerator[str, None]:
    """Runs a command line of the page, at a free port, and yields its address."""
    words = [
        "-m",
        "turnwire.client.cli",
        *shlex.split(line),
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "off",
        "--metrics",
        "off",
    ]
    async with started(*words, cwd=cwd) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(BOUND):
            said = (await process.stdout.readline()).decode()
            assert said, (await process.stderr.read()).decode()
        yield said.removeprefix("grpc listening on ").strip()


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[Fake]:
    """Starts a fake upstream and returns its HOST:PORT."""
    async with AsyncExitStack() as stack:

        async def start(*arguments: str) -> str:
            process = await stack.enter_async_context(started(*arguments, cwd=tmp_path))
            assert process.stdout is not None
            async with asyncio.timeout(BOUND):
                told = json.loads(await process.stdout.readline())
            return f"127.0.0.1:{told['port'] if isinstance(told, dict) else told}"

        yield start


def tokens_fake(kind: str, *options: str, ids: Sequence[int] = HARMONY) -> list[str]:
    return ["-m", f"turnwire.bench.fakes.{kind}", *options, "--ids", *map(str, ids)]


def write_model(folder: Path) -> tuple[list[int], int]:
    """Writes a model's folder, and returns the ids of what it is to say and the size of its vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}
    end = 257
    added = [{"id": 256, "content": "<|im_start|>"}, {"id": end, "content": "<|im_end|>"}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [token | flags for token in added],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": alphabet, "merges": []},
    }
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
    return [*b"From tokens.", end], end + 1


async def ask(address: str, model: str) -> str:
    async with connect(address) as session:
        stream = await session.create(model=model, input="Hello.")
        response = await stream.get_final_response()
        assert response.model == model
        return stream.output_text


async def test_scripted(tmp_path: Path) -> None:
    async with serving(command("scripted"), tmp_path) as address:
        assert await ask(address, "scripted")


async def test_openai(fake: Fake, tmp_path: Path) -> None:
    upstream = await fake(str(ROOT / "tests" / "engine_chat" / "upstream.py"))
    line = command("openai", "--upstream-key-env").replace("127.0.0.1:8000", upstream)
    async with serving(line, tmp_path) as address:
        assert await ask(address, "m") == "Hello."


async def test_openai_with_a_flavour_and_a_model(fake: Fake, tmp_path: Path) -> None:
    upstream = await fake(str(ROOT / "tests" / "engine_chat" / "upstream.py"))
    async with serving(command("ollama").replace("127.0.0.1:11434", upstream), tmp_path) as address:
        assert await ask(address, "gpt-oss:20b") == "Hello."


@pytest.mark.parametrize(
    ("kind", "module", "old"),
    [
        ("vllm", "vllm_http", "127.0.0.1:8000"),
        ("vllm-grpc", "vllm_grpc", "127.0.0.1:50061"),
        ("sglang-grpc", "sglang_grpc", "127.0.0.1:50061"),
    ],
)
async def test_a_token_engine_with_harmony(fake: Fake, tmp_path: Path, kind: str, module: str, old: str) -> None:
    upstream = await fake(*tokens_fake(module))
    async with serving(command(kind, "harmony").replace(old, upstream), tmp_path) as address:
        assert await ask(address, "tiny") == "From tokens."
        async with connect(address) as session:
            [model] = await session.list_models()
    assert (model.id, model.context_length, model.engine) == ("tiny", 131_072, kind)


async def test_vllm_with_a_folder(fake: Fake, tmp_path: Path) -> None:
    ids, _ = write_model(tmp_path / "model")
    upstream = await fake(*tokens_fake("vllm_http", ids=ids))
    line = command("vllm", "--tokenizer").replace("127.0.0.1:8000", upstream)
    async with serving(line, tmp_path) as address:
        assert await ask(address, "tiny") == "From tokens."


async def test_vllm_grpc_gives_its_tokenizer(fake: Fake, tmp_path: Path) -> None:
    ids, size = write_model(tmp_path / "model")
    options = ("--tokenizer", str(tmp_path / "model"), "--vocab", str(size), "--eos", str(size - 1))
    upstream = await fake(*tokens_fake("vllm_grpc", *options, ids=ids))
    async with serving(command("vllm-grpc").replace("127.0.0.1:50061", upstream), tmp_path) as address:
        assert await ask(address, "tiny") == "From tokens."


async def test_a_registry_file(fake: Fake, tmp_path: Path) -> None:
    replicas = [await fake(*tokens_fake("vllm_grpc")) for _ in range(2)]
    chat = await fake(str(ROOT / "tests" / "engine_chat" / "upstream.py"))
    text = REGISTRY
    for old, new in zip(("127.0.0.1:50061", "127.0.0.1:50062", "127.0.0.1:8000"), (*replicas, chat), strict=True):
        text = text.replace(old, new)
    (tmp_path / "models.toml").write_text(text)
    async with serving(command("--models"), tmp_path) as address:
        assert await ask(address, "gpt-oss-20b") == "From tokens."
        assert await ask(address, "big-1") == "Hello."
        async with connect(address) as session:
            listed = {model.id: (model.engine, model.context_length) for model in await session.list_models()}
            stream = await session.create(model="fast", input="Hello.", temperature=0.5)
            assert (await stream.get_final_response()).model == "gpt-oss-20b"
            # What is ignored does not fail, and what is refused does.
            await (await session.create(model="big-1", input="Hello.", temperature=0.5)).get_final_response()
            with pytest.raises(RequestRejectedError, match="max_output_tokens"):
                await session.create(model="fast", input="Hello.", max_output_tokens=100_000)
    assert listed == {"gpt-oss-20b": ("vllm-grpc", 131_072), "big-1": ("openai", 200_000)}


@pytest.mark.engines
@pytest.mark.parametrize("options", [(), ("--slots",)])
async def test_local(tmp_path: Path, options: tuple[str, ...]) -> None:
    if options:
        (tmp_path / "model.gguf").symlink_to(find_model(LocalConfig()).path)
    async with serving(command("local", *options), tmp_path) as address, connect(address) as session:
        [model] = await session.list_models()
        assert (model.engine, model.context_length) == ("local", 16_384 if options else 8_192)
        stream = await session.create(model=model.id, input="Say hello.", max_output_tokens=16, temperature=0)
        response = await stream.get_final_response()
        assert response.usage.output_tokens > 0


async def test_an_engine_that_is_not_there_is_named(tmp_path: Path) -> None:
    line = shlex.split(command("vllm", "harmony").replace("127.0.0.1:8000", "127.0.0.1:9"))
    async with started(
        "-m", "turnwire.client.cli", *line, "--http", "off", "--metrics", "off", cwd=tmp_path
    ) as process:
        async with asyncio.timeout(BOUND):
            _, words = await process.communicate()
    assert process.returncode == 1
    assert words.decode().splitlines()[-1].startswith("Error: vllm at http://127.0.0.1:9/v1: not reached")


async def test_an_engine_of_another_model_is_refused(fake: Fake, tmp_path: Path) -> None:
    upstream = await fake(*tokens_fake("vllm_grpc", "--vocab", "1000", "--eos", "2"))
    line = shlex.split(command("vllm-grpc", "harmony").replace("127.0.0.1:50061", upstream))
    async with started(
        "-m", "turnwire.client.cli", *line, "--http", "off", "--metrics", "off", cwd=tmp_path
    ) as process:
        async with asyncio.timeout(BOUND):
            _, words = await process.communicate()
    assert process.returncode == 1
    assert "the renderer harmony" in words.decode()
    assert f"vllm-grpc at {upstream} (tiny) do not go together" in words.decode()


async def test_packages_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    line = command("vllm", "--tokenizer")
    hide = "sys.modules |= dict.fromkeys(('jinja2', 'tokenizers'))"
    run = f"sys.argv[1:] = {shlex.split(line)!r}; from turnwire.client.cli import main; main()"
    code = f"import sys; {hide}; {run}"
    async with started("-c", code, cwd=tmp_path) as process:
        async with asyncio.timeout(BOUND):
            _, words = await process.communicate()
    told = "the engine vllm needs tokenizers, jinja2: pip install 'turnwire[server,template]'"
    assert (process.returncode, words.decode()) == (2, f"Error: {told}\n")


def test_every_engine_has_a_command_line() -> None:
    lines = [shlex.split(line) for line in COMMANDS]

    assert {words[words.index("--engine") + 1] for words in lines if "--engine" in words} == set(ENGINES)
