"""A model without weights: a GGUF file with a small vocabulary, and a llama.cpp that encodes by it and says ids."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from turnwire.server.engine.local.llama import Loaded
from turnwire.server.engine.local.model import ModelFile
from turnwire.server.engine.local.speech import Speech, open_speech

from .scene import FakeLlama, OnEvent

Value = bytes | int | bool | list[bytes] | list[int]

UNK, BOS, EOS, MARK, END_MARK = range(5)
FIRST_BYTE = 5
FIRST_CHAR = FIRST_BYTE + 256
CHARS = [chr(code) for code in (9, 10, *range(32, 127), 0xE9)]
TOKENS = [
    b"<unk>",
    b"<bos>",
    b"<eos>",
    b"<|mark|>",
    b"<|end|>",
    *(f"<0x{byte:02X}>".encode() for byte in range(256)),
    *(char.replace(" ", "\u2581").encode() for char in CHARS),
    b"\n\n",
]
PAIR = len(TOKENS) - 1
"""Two ends of a line."""
TYPES = [2, 3, 3, 3, 3, *[6] * 256, *[1] * len(CHARS), 4]

PACKAGED = files("turnwire.server.engine.local").joinpath("data", "chat.jinja").read_text("utf-8")
MARKED = (
    "{{ bos_token }}{% for message in messages %}<|mark|>{{ message.role }}\n{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|mark|>assistant\n{% endif %}"
)


def write_gguf(path: Path, entries: Mapping[str, Value], *, version: int = 3) -> Path:
    data = [struct.pack("<4sIQQ", b"GGUF", version, 0, len(entries))]
    for key, value in entries.items():
        data.append(_string(key.encode()))
        match value:
            case bool():
                data.append(struct.pack("<I?", 7, value))
            case int():
                data.append(struct.pack("<II", 4, value))
            case bytes():
                data.append(struct.pack("<I", 8) + _string(value))
            case _:
                texts = [_string(each) for each in value if isinstance(each, bytes)]
                numbers = [struct.pack("<i", each) for each in value if isinstance(each, int)]
                data.append(struct.pack("<IIQ", 9, 8 if texts else 5, len(value)) + b"".join([*texts, *numbers]))
    path.write_bytes(b"".join(data))
    return path


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def vocabulary(**changes: Value) -> dict[str, Value]:
    found: dict[str, Value] = {
        "model": b"llama",
        "pre": b"default",
        "tokens": TOKENS,
        "merges": [b"a b", b"c d"],
        "token_type": TYPES,
        "add_space_prefix": False,
        "eos_token_id": EOS,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in {**found, **changes}.items()}


def encode(text: str) -> list[int]:
    ids: list[int] = []
    at = 0
    while at < len(text):
        if text.startswith("\n\n", at):
            ids.append(PAIR)
            at += 2
            continue
        char = text[at]
        at += 1
        ids += [FIRST_CHAR + CHARS.index(char)] if char in CHARS else [FIRST_BYTE + byte for byte in char.encode()]
    return ids


def spelled(ids: Sequence[int]) -> str:
    parts: list[bytes] = []
    for token in ids:
        if token == PAIR:
            parts.append(b"\n\n")
        elif token >= FIRST_CHAR:
            parts.append(CHARS[token - FIRST_CHAR].encode())
        elif token >= FIRST_BYTE:
            parts.append(bytes([token - FIRST_BYTE]))
        else:
            parts.append(TOKENS[token])
    return b"".join(parts).decode()


class ToyLlama(FakeLlama):
    """Encodes by the toy vocabulary, and plays `script` for prompts of ids too."""

    def __init__(self, template: str = PACKAGED, *, context: int = 100_000) -> None:
        super().__init__(say("Yes."))
        tools = "tool" in template
        tokens = {"bos_token": "<bos>", "eos_token": "<eos>"}
        self.loaded = Loaded(context=context, tools=tools, template=template, tokens=tokens)
        self.asked: list[str] = []
        """Texts that were to be encoded."""

    def tokenize(
        self, content: Sequence[str | int], *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        ids = [BOS] if add_special else []
        for part in content:
            if isinstance(part, int):
                ids.append(part)
                continue
            self.asked.append(part)
            ids += self._cut(part) if parse_special else encode(part)
        return ids

    def _cut(self, text: str) -> list[int]:
        names = {name.decode(): at for at, name in enumerate(TOKENS[:FIRST_BYTE])}
        ids: list[int] = []
        while text:
            name, at = min(
                ((name, text.find(name)) for name in names if name in text), key=lambda f: f[1], default=("", -1)
            )
            if at < 0:
                return ids + encode(text)
            ids += [*encode(text[:at]), names[name]]
            text = text[at + len(name) :]
        return ids


def toy_speech(folder: Path, llama: ToyLlama) -> Speech:
    return open_speech(toy_file(folder), llama)


def toy_file(folder: Path, *, stop: tuple[str, ...] = (), max_output: int = 0) -> ModelFile:
    return ModelFile(write_gguf(folder / "toy.gguf", vocabulary()), "m", "", stop, max_output)


def token_event(
    token: int, text: str | None = None, logprob: float = -0.5, likeliest: Mapping[int, float] | None = None
) -> bytes:
    """What llama.cpp says of a token; the text of a whole character where the token is its last part."""
    top = [{"id": other, "logprob": value} for other, value in (likeliest or {}).items()]
    said = {"id": token, "logprob": logprob, "top_logprobs": top}
    text = spelled([token]) if text is None else text
    return json.dumps({"choices": [{"text": text, "logprobs": {"content": [said]}, "finish_reason": None}]}).encode()


def progress_event(cache: int) -> bytes:
    return json.dumps({"choices": [{"text": ""}], "prompt_progress": {"total": 9, "cache": cache}}).encode()


def end_event(reason: str = "stop", prompt: int = 0, cached: int = 3, output: int = 0) -> bytes:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return json.dumps({"choices": [{"text": "", "finish_reason": reason}], "usage": usage}).encode()


def say(text: str, *, end: int | None = EOS, reason: str = "stop") -> Callable[[dict[str, Any], OnEvent], None]:
    """A script that says a text of plain characters, then the end of it."""

    def script(body: dict[str, Any], on_event: OnEvent) -> None:
        ids = encode(text)
        events = [progress_event(3), *map(token_event, ids)]
        if end is not None:
            events.append(token_event(end, ""))
        for event in (*events, end_event(reason, len(body["prompt"]), output=len(ids) + (end is not None))):
            if on_event(event):
                return

    return script
