"""The report as one HTML page that needs nothing else: its plots, its style and its words are inside.

Above it: the command. Below it: the document, Jinja2 for the page, markdown-it for words. Pure.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from turnwire.bench.report.document import Document
from turnwire.bench.report.plots.style import COLOURS

# What files say is shown as text: no HTML of theirs gets into the page.
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False})
_FOLDER: Final = files("turnwire.bench.report")


def page(document: Document) -> str:
    """Returns the page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"words": _words, "inline": _inline, "kind": _kind}
    template = environment.from_string(_FOLDER.joinpath("page.html.j2").read_text(encoding="utf-8"))
    style = _FOLDER.joinpath("page.css").read_text(encoding="utf-8")
    day = " ".join(f"--{name}: {colour};" for name, (colour, _) in COLOURS.items())
    night = " ".join(f"--{name}: {colour};" for name, (_, colour) in COLOURS.items())
    return template.render(document=document, style=Markup(style), day=Markup(day), night=Markup(night)) + "\n"


def _words(text: str) -> Markup:
    return Markup(_MARKDOWN.render(text))


def _inline(text: str) -> Markup:
    return Markup(_MARKDOWN.renderInline(text))


def _kind(block: object) -> str:
    return type(block).__name__
