"""Small models' files: our own templates and those of real models, each with a tokenizer trained on the spot."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NoReturn

import jinja2.sandbox
import pytest

from turnwire.server.prompt.renderer import Head
from turnwire.server.prompt.template import TemplateRenderer
from turnwire.server.prompt.template.messages import Messages, lead, system_message, tool_definitions
from turnwire.v1.item_pb2 import Item

tokenizers: Any = importlib.import_module("tokenizers")

OWN = ("chatml", "headers", "turns", "qwen_coder", "glm", "dsml")
REAL = ("qwen2_5", "qwen3", "qwen3_5_think", "qwen3_8", "llama3_1", "gemma3", "deepseekv3", "glm4moe", "phi3", "gptoss")
"""Templates of real models, where the package `trl` is installed, which ships them."""

TRAINING = [
    "def read(path):\n    return open(path).read()\n\n",
    "What is the weather in Köln? Schön. 你好 世界 🙂",
    "user assistant system model tool call response function the and of to in a is that it",
]


def template(name: str) -> str:
    if name in OWN:
        return Path(__file__).with_name("templates").joinpath(f"{name}.jinja").read_text(encoding="utf-8")
    try:
        found = distribution("trl").locate_file(f"trl/chat_templates/{name}.jinja")
    except PackageNotFoundError:
        pytest.skip("the package trl, which ships templates of real models, is not installed")
    return Path(str(found)).read_text(encoding="utf-8")


def train(source: str) -> Any:
    """A byte-level tokenizer with a template's control tokens, some not marked as special, as with real models."""
    control = sorted(set(re.findall(r"<[|｜a-zA-Z_▁/]+[|｜]?>", source)))  # noqa: RUF001
    special = [token for token in control if token[1] in "|｜" or "turn" in token]  # noqa: RUF001
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator(TRAINING * 4, trainer)
    model.add_special_tokens(["<bos>", "<eos>", *special])
    model.add_tokens([*(token for token in control if token not in special), "\n\n", "<b>"])
    return model


class Model:
    """A model's renderer beside plain whole rendering of the same conversation."""

    def __init__(self, name: str) -> None:
        self.source = template(name)
        self.tokenizer = train(self.source)
        self.files = {
            "tokenizer.json": self.tokenizer.to_str().encode(),
            "tokenizer_config.json": json.dumps({"bos_token": "<bos>", "eos_token": {"content": "<eos>"}}).encode(),
            "chat_template.jinja": self.source.encode(),
        }
        self.renderer = TemplateRenderer(self.files)
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
        self._template = environment.from_string(self.source)

    def text(self, head: Head, items: list[Item]) -> str:
        """The prompt as plain Jinja gives it."""

        def plain(text: str) -> str:
            return text

        as_text = self.renderer.start(Head()).dialect.takes_arguments_as_text()
        builder = Messages(plain, arguments_as_text=as_text)
        for item in items:
            builder.add(item)
        made: Callable[..., str] = self._template.render
        return made(
            messages=lead([*system_message(head.instructions, plain), *builder.messages]),
            tools=tool_definitions(head.tools, plain) or None,
            add_generation_prompt=True,
            bos_token="<bos>",
            eos_token="<eos>",
            raise_exception=refuse,
            strftime_now=datetime.fromisoformat(head.date).strftime,
        )

    def ids(self, head: Head, items: list[Item]) -> list[int]:
        """Its tokens as the tokenizer alone gives them."""
        ids: list[int] = self.tokenizer.encode(self.text(head, items), add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text


def refuse(text: str) -> NoReturn:
    raise ValueError(text)


@functools.cache
def model(name: str) -> Model:
    return Model(name)
