"""Opens the chat engine for one upstream.

Above it: `opening`. Below it: the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.models.specs import EngineSpec, ModelSpec

_log: Final = logging.getLogger(__name__)


async def open_chat(
    spec: EngineSpec, upstream: str, models: Sequence[ModelSpec], environ: Mapping[str, str]
) -> ChatEngine:
    """Returns the engine; one whose upstream does not answer is used all the same, since it may come. Safe to cancel.

    Args:
        spec: The engine.
        upstream: Which of its upstreams.
        models: What it serves; none asks the upstream, unless the engine names some.
        environ: Where the upstream's key is.
    """
    listed = tuple(ChatModel(name) for name in spec.models) or tuple(_chat_model(model) for model in models)
    key = environ.get(spec.upstream_key_env, "").strip() if spec.upstream_key_env else ""
    engine = ChatEngine(
        ChatEngineConfig(base_url=upstream, flavour=spec.flavour, api_key=key, models=listed, **spec.options)
    )
    try:
        trouble = await engine.open()
    except BaseException:
        await engine.aclose()
        raise
    if trouble is not None:
        _log.warning("%s has no models yet: %s", upstream, trouble.message)
    return engine


def _chat_model(model: ModelSpec) -> ChatModel:
    return ChatModel(
        model.id,
        upstream=model.upstream_name,
        context_length=model.profile.context_length,
        images=model.profile.capabilities.images,
    )
