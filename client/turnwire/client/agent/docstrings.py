"""Reads what a tool's docstring tells the model: its first paragraph and its arguments.

Used by `tools` to describe functions. Knows Google-style `Args:` sections only, and passes over everything else.
"""

from __future__ import annotations

import inspect
import re

_ARGS_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")


def summary(doc: str | None) -> str:
    """Returns the first paragraph as one line; empty if there is none."""
    if not doc:
        return ""
    return " ".join(inspect.cleandoc(doc).partition("\n\n")[0].split())


def argument_descriptions(doc: str | None) -> dict[str, str]:
    """Returns the description of each argument named in the `Args:` section, as one line each."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    entry_indent: int | None = None
    for line in _args_section(doc):
        indent = len(line) - len(line.lstrip())
        if entry_indent is None:
            entry_indent = indent
        if indent <= entry_indent and (match := _ENTRY.fullmatch(line.strip())):
            current = found.setdefault(match["name"], [])
            current.append(match["text"])
        elif current is not None:
            current.append(line)
    return {name: " ".join(" ".join(lines).split()) for name, lines in found.items()}


def _args_section(doc: str | None) -> list[str]:
    """Returns the lines under `Args:` that are indented deeper than the heading, without blank ones."""
    lines = inspect.cleandoc(doc or "").split("\n")
    start = next((number for number, line in enumerate(lines, 1) if _ARGS_HEADING.fullmatch(line)), len(lines))
    section: list[str] = []
    for line in lines[start:]:
        if line.strip() and not line.startswith(" "):
            break
        if line.strip():
            section.append(line)
    return section
