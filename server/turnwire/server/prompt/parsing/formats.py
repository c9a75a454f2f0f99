"""Chooses the parser for a model's output format by its name.

Above it: engines and the model registry. Below it: all parsers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from turnwire.server.prompt.parsing.calls import Offered
from turnwire.server.prompt.parsing.dialects import DIALECTS
from turnwire.server.prompt.parsing.harmony import HarmonyParser
from turnwire.server.prompt.parsing.port import OutputParser
from turnwire.server.prompt.parsing.tagged import TaggedParser, thinking_is_open
from turnwire.server.prompt.parsing.token_table import TokenTable

FORMATS: Final = ("harmony", *DIALECTS)
"""The names that `parser_for` knows."""
_PLAIN_TEXT: Final = "text"
"""The format without calls."""
_NO_SCHEMAS: Final[Mapping[str, str]] = MappingProxyType({})


class UnknownFormatError(ValueError):
    """There is no format of that name."""


def format_of_template(template: str) -> str:
    """Returns the format of the models that a chat template is made for, by the marks in it; `text` for no known one.

    Args:
        template: The template, or any text that holds it: in JSON, characters beyond ASCII may be escaped.
    """
    if "\\u" in template:
        template += "\n" + template.encode().decode("unicode_escape", errors="replace")
    for name, dialect in DIALECTS.items():
        if any(sign in template for sign in dialect.signs or dialect.openers):
            return name
    return _PLAIN_TEXT


def parser_for(
    output_format: str,
    tokenizer: TokenTable | None = None,
    *,
    prompt: Sequence[int] = (),
    prompt_text: str = "",
    tools: Collection[str] = (),
    schemas: Mapping[str, str] = _NO_SCHEMAS,
) -> OutputParser:
    """Makes the parser for one pass.

    Args:
        output_format: One of `FORMATS`.
        tokenizer: Needed by all but `harmony` where the engine gives ids without text.
        prompt: The last ids of the prompt (a few dozen do): templates may have begun the output, with an open
            reasoning or part of a header.
        prompt_text: The same as text, for engines without ids.
        tools: Names of the tools offered. Formats without marks take nothing else for a call.
        schemas: JSON Schemas of their arguments as JSON text, by name: formats that write arguments as bare text tell
            a number from a string by them. What has none is JSON where it reads as JSON.

    Raises:
        UnknownFormatError: There is no such format.
    """
    if output_format == "harmony":
        return HarmonyParser(prompt, tools)
    dialect = DIALECTS.get(output_format)
    if dialect is None:
        msg = f"unknown output format {output_format!r}: choose one of {', '.join(FORMATS)}"
        raise UnknownFormatError(msg)
    thinking = thinking_is_open(dialect, tokenizer, prompt, prompt_text)
    return TaggedParser(dialect, tokenizer, thinking=thinking, offered=Offered(frozenset(tools), schemas))
