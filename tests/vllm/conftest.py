"""A real vLLM on the CPU, with a small model of random weights; `make test-vllm` makes its environment.

Without `TURNWIRE_VLLM_PYTHON`, the interpreter of an environment with vLLM, nothing here is collected.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwire.server.prompt import vocabulary

PYTHON = os.environ.get("TURNWIRE_VLLM_PYTHON", "")

collect_ignore_glob = [] if PYTHON else ["test_*.py"]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 201_088,
    "max_position_embeddings": 65_536,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 199_998,
    "eos_token_id": 200_002,
    "torch_dtype": "float32",
}
"""A llama small enough for a second of start, with harmony's ids."""


def byte_alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in alphabet]
    return alphabet | {byte: chr(0x100 + index) for index, byte in enumerate(others)}


def tokenizer_json() -> str:
    """Writes harmony's vocabulary as a Hugging Face tokenizer without merges: it decodes what the engine samples."""
    encoding = vocabulary.encoding()
    alphabet = byte_alphabet()
    vocab = {
        "".join(alphabet[byte] for byte in piece): encoding.encode_single_token(piece)
        for piece in encoding.token_byte_values()
    }
    added = [
        {
            "id": encoding.encode_single_token(text),
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text in sorted(encoding.special_tokens_set)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": sorted(added, key=lambda entry: entry["id"]),
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": vocab,
                "merges": [],
            },
        }
    )


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|return|>"}), encoding="utf-8"
    )
    return folder


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def running(module: str, model: Path, port: int, more: Sequence[str] = ()) -> Generator[int]:
    # The `vllm` command looks for a distribution of that name, which the CPU wheel is not.
    command = [PYTHON, "-m", module, "--model", str(model), "--served-model-name", "tiny", "--load-format", "dummy"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "8192", "--dtype", "float32", *more]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(command, env=environment)
    try:
        yield port
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def grpc_port(model: Path) -> Generator[int]:
    yield from running("vllm.entrypoints.launchers.grpc_server", model, free_port())


@pytest.fixture(scope="module")
def http_port(model: Path) -> Generator[int]:
    yield from running("vllm.entrypoints.openai.api_server", model, free_port(), ["--enable-prompt-tokens-details"])


@pytest.fixture
def settings() -> dict[str, Any]:
    """Sampling that is quick and repeatable."""
    return {"temperature": 0.0, "max_tokens": 24, "seed": 7}
