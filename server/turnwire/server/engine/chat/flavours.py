"""What the OpenAI-compatible servers make of the same API: one row per kind.

Above it: `config`, which names one, and everything that writes a request. Below it: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Flavour:
    """How one kind of server differs from the others."""

    max_tokens: str
    """The parameter that limits output."""
    reasoning: str | None
    """The field of an assistant message that takes reasoning back; None where there is none."""
    developer_role: bool = False
    """Whether it knows the role `developer`; elsewhere such messages are `system`."""
    joined_lead: bool = True
    """Whether instructions and leading system messages become one message: templates commonly take one, the first."""
    merged_roles: bool = False
    """Whether neighbouring messages of one role become one: strict templates refuse two users in a row."""
    flat_text: bool = True
    """Whether several text parts are sent as one text: many templates take only text."""
    files: bool = False
    """Whether it takes `file` parts."""
    named_choice: bool = True
    """Whether it obeys a tool choice that names a function. Elsewhere that function alone is offered, and required."""
    forced_choice: bool = True
    """Whether a model that must call a tool does. Elsewhere its answer is held to the schema of a call."""
    allowed_tools: bool = False
    """Whether it knows the choice `allowed_tools`. Elsewhere only those tools are offered."""
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Settings beyond the official chat API that it knows, and its names for them."""
    logit_bias: bool = True
    """Whether it knows `logit_bias`."""
    official: bool = False
    """Whether it takes every parameter of the official service, such as `verbosity` and `prompt_cache_key`."""


FLAVOURS: Final[Mapping[str, Flavour]] = MappingProxyType(
    {
        # Any other server: only what all of them take.
        "generic": Flavour(max_tokens="max_tokens", reasoning=None),
        "openai": Flavour(
            max_tokens="max_completion_tokens",
            reasoning=None,
            developer_role=True,
            joined_lead=False,
            flat_text=False,
            files=True,
            allowed_tools=True,
            official=True,
        ),
        "vllm": Flavour(
            max_tokens="max_completion_tokens",
            reasoning="reasoning",
            merged_roles=True,
            extensions=MappingProxyType(
                {"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty"}
            ),
        ),
        "llamacpp": Flavour(
            max_tokens="max_tokens",
            reasoning="reasoning_content",
            merged_roles=True,
            # It reads a choice that names a function as "auto", without a word, and lets a model that must call talk.
            named_choice=False,
            forced_choice=False,
            extensions=MappingProxyType({"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repeat_penalty"}),
        ),
        "ollama": Flavour(
            max_tokens="max_tokens",
            reasoning="reasoning",
            named_choice=False,
            logit_bias=False,
        ),
    }
)
"""Name to row."""
