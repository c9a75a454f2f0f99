"""The port of tokenizers: what the template renderer asks of one.

Above: the template renderer. Below: one class per source of tokenizers.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from turnwire.server.prompt.template.marks import SpecialTokens


class Tokenizer(Protocol):
    """Encodes what a template rendered. Safe to use from several threads."""

    special: SpecialTokens
    """Its control tokens."""
    hash: str
    """Identifies it in every detail."""

    def encode(self, text: str, *, begins: bool) -> array[int]:
        """Returns the ids of a marked text.

        Args:
            text: What a template rendered.
            begins: Whether the prompt begins with it; else a control token or a border stands before it.

        Raises:
            RenderError: The text cannot be encoded.
        """
        ...

    def border(self, left: str, right: str) -> bool:
        """Whether two characters part a text wherever they stand beside each other.

        No token reaches from one into the other, and the ids of the text on either side are the same without the
        other side. False where nobody knows.
        """
        ...
