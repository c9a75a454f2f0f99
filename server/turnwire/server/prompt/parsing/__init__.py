"""From a model's output to text, reasoning and tool calls, piece by piece, whatever the pieces are.

Above it: engines that take and give tokens, or that take a rendered prompt. Below it: the vocabulary. Pure: ids and
text in, events out. No output raises: what a format cannot read becomes text or reasoning by the rules of
`docs/output-formats.md`.
"""

from turnwire.server.prompt.parsing.events import (
    Event,
    ParsedCallDelta,
    ParsedCallEnd,
    ParsedCallStart,
    ParsedText,
    ParsedTextEnd,
)
from turnwire.server.prompt.parsing.formats import FORMATS, UnknownFormatError, format_of_template, parser_for
from turnwire.server.prompt.parsing.port import OutputParser
from turnwire.server.prompt.parsing.token_table import TokenTable

__all__ = [
    "FORMATS",
    "Event",
    "OutputParser",
    "ParsedCallDelta",
    "ParsedCallEnd",
    "ParsedCallStart",
    "ParsedText",
    "ParsedTextEnd",
    "TokenTable",
    "UnknownFormatError",
    "format_of_template",
    "parser_for",
]
