"""Engines and models as they were asked for, as frozen values.

Above it: whoever reads them from flags or files, and whoever opens engines by them. Below it: profiles of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from turnwire.server.engine.profile import PLAIN, ModelProfile
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.routing.health import POLICY, RoutingPolicy

ENGINES: Final = ("scripted", "openai", "vllm", "vllm-grpc", "sglang-grpc", "local")
"""Kinds of engines."""

TOKEN_ENGINES: Final = ("vllm", "vllm-grpc", "sglang-grpc")
"""Those of them that take and give token ids."""


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One inference server of several equal ones."""

    address: str
    weight: float = 1.0
    """Its share of new conversations beside the others'; 0 leaves it what it has and gives it no more."""
    routing_headers: tuple[str, ...] | None = None
    """Headers, or keys of gRPC metadata, that carry what a conversation is routed by; None leaves it to the engine."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Where tokens come from. What a kind of engine has no use for stays as it is here. Times are in seconds."""

    kind: str = "scripted"
    """One of `ENGINES`."""
    name: str = ""
    """What the registry file calls it."""
    models: tuple[str, ...] = ()
    """Names of models, where no registry file tells of them; of `local`, the path of a model's file."""
    scenario: Path | None = None
    """What the scripted engine plays; None plays the packaged demo."""
    speed: SpeedChange = field(default_factory=SpeedChange)
    """Set over the speed that the scenario says."""
    upstream: tuple[UpstreamSpec, ...] = ()
    """Where the inference server is; of several equal ones, each conversation stays with one."""
    routing: RoutingPolicy = POLICY
    """How passes move between them."""
    upstream_key_env: str = ""
    """The environment variable that holds the upstream's API key; empty sends none."""
    flavour: str = "generic"
    """Which server's habits an OpenAI-compatible upstream has."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Further settings of the `openai` engine, by the names of `ChatEngineConfig`."""
    renderer: str = ""
    """`harmony` or `template`; empty chooses by what else is said."""
    tokenizer: Path | None = None
    """A folder with a model's `tokenizer.json` and chat template."""
    output_format: str = ""
    """How the model writes reasoning and calls; empty looks for the marks in its chat template."""
    start_timeout: float = 20.0
    """Time for a token engine to answer at the start."""
    slots: int | None = None
    """Conversations that the local model keeps at once; None leaves it to the engine."""
    context: int | None = None
    """Tokens of prompt and output of one conversation of the local model; None leaves it to the engine."""
    threads: int | None = None
    """Threads of the local model; None leaves it to the engine."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of the registry."""

    id: str
    engine: str
    """Name of its engine."""
    upstream_name: str = ""
    """What the engine calls it; empty where that is the same, or the engine has one model only."""
    file: Path | None = None
    """Of the local engine: the model's file."""
    aliases: tuple[str, ...] = ()
    owned_by: str = "turnwire"
    profile: ModelProfile = PLAIN


@dataclass(frozen=True, slots=True)
class Registry:
    """All engines and the models that are told of; an engine without any serves what it finds."""

    engines: tuple[EngineSpec, ...] = ()
    models: tuple[ModelSpec, ...] = ()

    def of(self, engine: EngineSpec) -> tuple[ModelSpec, ...]:
        """Returns the models of an engine."""
        return tuple(model for model in self.models if model.engine == engine.name)
