"""A whole server with some optimizations switched off, and what stands behind it: each a process of its own.

Above it: the ablation bench, and the test that every switch leaves the answers as they are. Below it: fakes of a vLLM
gRPC server and of a chat server, an image service, and the command line. The server renders harmony in front of the
token engine, writes JSON for the chat server, looks for what its safety rules say, and keeps a ledger.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnwire.bench.doors_processes import Process, running
from turnwire.bench.fakes import chat
from turnwire.server.prompt import vocabulary

TOKENS: Final = "tiny"
"""The model behind token ids."""
CHAT: Final = chat.MODEL
"""The model behind the chat API."""
TOOL: Final = chat.TOOL
"""The tool that both call in each pass."""

CALLS: Final = (
    "<|channel|>analysis<|message|>Let me look further.<|end|><|start|>assistant<|channel|>commentary"
    f' to=functions.{TOOL} <|constrain|>json<|message|>{{"at":1}}<|call|>'
)
"""What the token engine samples, whatever it is given."""

_PYTHON: Final = (sys.executable, "-m")
_CONTEXT: Final = 4_000_000

_SAFETY: Final = """
mode = "gate"
[[category]]
name = "secrets"
literals = ["begin rsa private key", "hunter2"]
patterns = ["AKIA[0-9A-Z]{16}", "ghp_[0-9A-Za-z]{36}"]
[[category]]
name = "words"
action = "flag"
words_file = "words.txt"
"""


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Addresses of what stands behind the server."""

    tokens: str
    chat: str
    images: str


@contextmanager
def _token_engine() -> Generator[str, None, None]:
    """Runs the fake token engine, and yields its address."""
    ids = vocabulary.encoding().encode(CALLS, allowed_special="all")
    options = ("--quiet", "--context", str(_CONTEXT), "--model", TOKENS, "--ids", *map(str, ids))
    command = (*_PYTHON, "turnwire.bench.fakes.vllm_grpc", *options)
    engine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert engine.stdin is not None
    assert engine.stdout is not None
    try:
        yield f"127.0.0.1:{json.loads(engine.stdout.readline())['port']}"
    finally:
        engine.stdin.close()
        engine.kill()
        engine.wait()
        engine.stdout.close()


@contextmanager
def upstreams() -> Generator[Upstreams, None, None]:
    """Runs what stands behind servers, any number of them.

    Raises:
        RuntimeError: One did not start; its own words are in the message.
    """
    with ExitStack() as stack:
        tokens = stack.enter_context(_token_engine())
        chats = stack.enter_context(running((*_PYTHON, "turnwire.bench.fakes.chat"), ("chat",)))
        images = stack.enter_context(running((*_PYTHON, "turnwire.bench.image_service"), ("images",)))
        yield Upstreams(tokens, chats.addresses["chat"], images.addresses["images"])


@contextmanager
def server(
    behind: Upstreams,
    disable: Collection[str] = (),
    *,
    options: Sequence[str] = (),
    models: str = "",
    data: Path | None = None,
) -> Generator[Process, None, None]:
    """Runs a server; yields it once it listens for gRPC and HTTP, and tells its metrics.

    Args:
        behind: Where its models are.
        disable: Optimizations that are switched off.
        options: Further options of `turnwire serve`.
        models: Further engines and models, as lines of the registry file.
        data: Where the ledger is; by default in a folder that is gone with the server.

    Raises:
        RuntimeError: It did not start; its own words are in the message.
    """
    with tempfile.TemporaryDirectory(prefix="turnwire-ablation-") as name:
        folder = Path(name)
        registry = _registry(behind) + models
        (folder / "models.toml").write_text(registry, encoding="utf-8")
        (folder / "safety.toml").write_text(_SAFETY, encoding="utf-8")
        (folder / "words.txt").write_text("\n".join(f"forbidden{n}" for n in range(1_000)), encoding="utf-8")
        given = [*options]
        for listening in ("--grpc", "--http", "--metrics"):
            given += (listening, "127.0.0.1:0")
        given += ("--models", str(folder / "models.toml"), "--safety", str(folder / "safety.toml"))
        given += ("--data-dir", str(data or folder / "data"))
        if disable:
            given += ("--disable", ",".join(disable))
        if "inline-images" in disable:
            given += ("--image-service", behind.images)
        command = (*_PYTHON, "turnwire.client.cli", "serve", *given)
        with running(command, ("grpc", "http", "metrics")) as process:
            yield process


def _registry(behind: Upstreams) -> str:
    return f"""
[engines.tokens]
kind = "vllm-grpc"
upstream = "{behind.tokens}"
renderer = "harmony"
[engines.chat]
kind = "openai"
upstream = "{behind.chat}"
[models.{TOKENS}]
engine = "tokens"
[models.{CHAT}]
engine = "chat"
"""
