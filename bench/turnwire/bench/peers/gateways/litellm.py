"""The proxy of LiteLLM, in Python, with its provider for vLLM servers.

Above it: the list of gateways. Below it: PyPI. Chained turns over HTTP it hands on to the upstream as they are, which
an upstream without a store refuses; over WebSocket it keeps conversations itself, for as long as the socket lives.
"""

from __future__ import annotations

from typing import Final

from turnwire.bench.fakes.upstream import MODEL
from turnwire.bench.peers.port import Gateway, Launch, Place

_QUIET: Final = {
    # The price list would be fetched from elsewhere.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOG": "ERROR",
    "NO_DOCS": "True",
}


def launch(place: Place) -> Launch:
    """Returns how it is started; writes its configuration, in which one refused request does not close the way for
    those behind it."""
    config = place.folder / "litellm.yaml"
    config.write_text(
        f"""
model_list:
  - model_name: {MODEL}
    litellm_params:
      model: hosted_vllm/{MODEL}
      api_base: {place.upstream}/v1
      api_key: none
litellm_settings:
  telemetry: false
router_settings:
  disable_cooldowns: true
""",
        encoding="utf-8",
    )
    options = ("--host", "127.0.0.1", "--port", str(place.http), "--num_workers", "1", "--telemetry", "False")
    environment = _QUIET | {"LITELLM_MASTER_KEY": place.key}
    return Launch((place.tool("litellm"), "--config", str(config), *options), environment)


GATEWAY: Final = Gateway(
    "litellm", launch, ("litellm[proxy]==1.108.7",), chained=("sse", "ws"), patience=120.0, stores="memory of a socket"
)
