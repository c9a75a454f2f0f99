"""Opens the chat engine for one upstream.

Above it: `opening`. Below it: the engine.
"""

from __future__ import annotations

import logging
from typing import Final

from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.models.opening import Opening
from turnwire.server.models.specs import ModelSpec, UpstreamSpec

_log: Final = logging.getLogger(__name__)


_ROUTING_HEADERS: Final = {"vllm": ("X-Session-ID", "X-SMG-Routing-Key")}
"""What routers in front of upstreams of a flavour read; others are told nothing where nothing is configured."""


async def open_chat(opening: Opening, upstream: UpstreamSpec) -> ChatEngine:
    """Returns the engine; one whose upstream does not answer is used all the same, since it may come. Safe to cancel.

    Args:
        opening: What it serves; no models ask the upstream.
        upstream: Which of its upstreams.
    """
    spec = opening.spec
    models = tuple(ChatModel(name) for name in spec.models) or tuple(_chat_model(model) for model in opening.models)
    headers = upstream.routing_headers
    engine = ChatEngine(
        ChatEngineConfig(
            base_url=upstream.address,
            flavour=spec.flavour,
            api_key=opening.key,
            models=models,
            routing_headers=_ROUTING_HEADERS.get(spec.flavour, ()) if headers is None else headers,
            **spec.options,
        ),
        opening.routing.revision.bump,
    )
    try:
        trouble = await engine.open()
    except BaseException:
        await engine.aclose()
        raise
    if trouble is not None:
        _log.warning("%s has no models yet: %s", upstream.address, trouble.message)
    return engine


def _chat_model(model: ModelSpec) -> ChatModel:
    return ChatModel(
        model.id,
        upstream=model.upstream_name,
        context_length=model.profile.context_length,
        images=model.profile.capabilities.images,
    )
