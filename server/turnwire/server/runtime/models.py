"""What the list of models tells of one model.

Above: `local`. Below: what engines and the model registry know of it.
"""

from __future__ import annotations

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import Capabilities, Price
from turnwire.v1.responses_service_pb2 import Model, ModelCapabilities, ModelPrice

_ALL = Capabilities()


def told(info: ModelInfo, engine: str, started: float) -> Model:
    """Returns a model as it is listed.

    Args:
        info: What is known of it.
        engine: The name of the engine behind it.
        started: When the server began to serve it, in seconds since 1970-01-01 UTC.
    """
    profile = info.profile
    return Model(
        id=info.id,
        owned_by=info.owned_by,
        context_length=info.context_length,
        engine=engine,
        aliases=info.aliases,
        max_output_tokens=profile.max_output_tokens,
        # A profile that rules nothing out leaves the judgement to the engine, so nothing is promised here.
        capabilities=None if profile.capabilities == _ALL else _capabilities(profile.capabilities),
        unsupported_parameters=sorted(profile.unsupported),
        ignores_unsupported=profile.ignores,
        price=None if profile.price is None else _price(profile.price),
        created=int(started),
    )


def _capabilities(can: Capabilities) -> ModelCapabilities:
    return ModelCapabilities(
        images=can.images,
        tools=can.tools,
        parallel_tool_calls=can.parallel_tools,
        json_schema=can.json_schema,
        reasoning=can.reasoning,
        logprobs=can.logprobs,
    )


def _price(price: Price) -> ModelPrice:
    return ModelPrice(input=price.input, cached_input=price.cached, output=price.output, currency=price.currency)
