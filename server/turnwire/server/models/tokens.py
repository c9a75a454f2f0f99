"""Opens token engines: the adapter of its protocol, and the renderer and parser of its model.

Above it: `opening`. Below it: the engines, and the renderers and parsers of `prompt`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnwire.server.engine.by_model import ByModelEngine
from turnwire.server.engine.port import Engine
from turnwire.server.engine.tokens.grpc_engine import ROUTING_KEYS, GrpcEngine
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.port import EngineStartError, TokenEngine
from turnwire.server.engine.tokens.replicas import Replicas
from turnwire.server.models.opening import EngineOpenError, Opening, open_all, renders_by_template
from turnwire.server.models.specs import EngineSpec, UpstreamSpec
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable, format_of_template
from turnwire.server.prompt.renderer import Renderer

_TOKENIZER: Final = "tokenizer.json"
_FILES: Final = (_TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""What is read of a model's folder."""


@dataclass(frozen=True, slots=True)
class Format:
    """How to speak with a model."""

    renderer: Renderer
    output: str
    """Its output format."""
    table: TokenTable


async def open_tokens(opening: Opening) -> Engine:
    """Returns the engine, or several as one where its upstreams serve several models. Safe to cancel.

    Raises:
        EngineOpenError: It cannot be reached, or its model does not go with what was configured.
    """
    # One upstream may serve several models, each with passes of its own kind.
    spec = opening.spec
    groups: dict[str, list[str]] = {}
    for model in opening.models:
        groups.setdefault(model.upstream_name, []).append(model.id)
    for name in spec.models:
        # HTTP servers choose the model by its name; those of gRPC have one, which clients may call as we like.
        groups.setdefault(name if spec.kind == "vllm" else "", []).append(name)
    try:
        opened = await open_all(_open(opening, name, ids) for name, ids in (groups or {"": []}).items())
    except EngineStartError as error:
        raise EngineOpenError(str(error)) from error
    return opened[0] if len(opened) == 1 else ByModelEngine(opened)


async def _open(opening: Opening, upstream_name: str, ids: Sequence[str]) -> Engine:
    spec = opening.spec
    adapters = [_adapter(spec, upstream, upstream_name, opening.key) for upstream in spec.upstream]
    tokens = Replicas(opening.pool(adapters))
    try:
        facts = await tokens.facts()
        if upstream_name and facts.model and upstream_name != facts.model:
            msg = f"{tokens.name} at {tokens.address}: it serves {facts.model}, not {upstream_name}"
            raise EngineStartError(msg)
        chosen = await _format(spec, adapters[0])
    except BaseException:
        await tokens.aclose()
        raise
    return await open_token_engine(
        tokens,
        chosen.renderer,
        chosen.output,
        chosen.table,
        models=ids,
        contexts={model.id: context for model in opening.models if (context := model.profile.context_length)},
        on_rendered=opening.observer.rendered,
        on_cached=opening.observer.cached,
    )


def _adapter(spec: EngineSpec, upstream: UpstreamSpec, upstream_name: str, key: str) -> TokenEngine:
    address, headers, timeout = upstream.address, upstream.routing_headers, spec.start_timeout
    match spec.kind:
        case "vllm":
            from turnwire.server.engine.tokens.vllm_http import ROUTING_HEADERS, VllmHttpEngine

            told = ROUTING_HEADERS if headers is None else headers
            return VllmHttpEngine(
                address, model=upstream_name, api_key=key, start_timeout=timeout, routing_headers=told
            )
        case "vllm-grpc":
            from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine

            return VllmGrpcEngine(address, start_timeout=timeout, routing_keys=_keys(headers))
        case _:
            from turnwire.server.engine.tokens.sglang_grpc import SglangGrpcEngine

            return SglangGrpcEngine(address, start_timeout=timeout, routing_keys=_keys(headers))


def _keys(headers: Sequence[str] | None) -> Sequence[str]:
    return ROUTING_KEYS if headers is None else headers


async def _format(spec: EngineSpec, tokens: TokenEngine) -> Format:
    if not renders_by_template(spec):
        return Format(HarmonyRenderer(), "harmony", TokenTable.from_tiktoken(vocabulary.encoding()))
    from turnwire.server.prompt.template.renderer import TemplateRenderer

    if spec.tokenizer is not None:
        source, files = str(spec.tokenizer), _read(spec.tokenizer)
    elif isinstance(tokens, GrpcEngine):
        source = f"{tokens.name} at {tokens.address}"
        files = (await tokens.tokenizer()).files
    else:
        msg = (
            f"{tokens.name} at {tokens.address}: it does not give its tokenizer away; say where it is with --tokenizer"
        )
        raise EngineStartError(msg)
    try:
        renderer = TemplateRenderer(files)
        table = TokenTable.from_tokenizer_json(files[_TOKENIZER])
    except ValueError as error:
        msg = f"the tokenizer of {source} cannot be used: {error}"
        raise EngineStartError(msg) from error
    return Format(renderer, spec.output_format or _guess(files), table)


def _read(folder: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name in _FILES:
        path = folder / name
        if path.is_file():
            try:
                files[name] = path.read_bytes()
            except OSError as error:
                msg = f"{path}: cannot be read: {error.strerror}"
                raise EngineStartError(msg) from error
    return files


def _guess(files: Mapping[str, bytes]) -> str:
    """Returns the output format whose marks stand in a model's chat template."""
    text = b"\n".join(data for name, data in files.items() if name != _TOKENIZER)
    return format_of_template(text.decode(errors="replace"))
