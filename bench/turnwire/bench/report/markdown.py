"""The report as Markdown, with its plots as files beside it.

Above it: the command. Below it: the document. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.bench.report.document import Block, Document, Folded, Made, Picture, Row, Table, Words


def markdown(document: Document) -> str:
    """Returns the document's text; plots are linked to as `NAME.svg`."""
    contents = "\n".join(f"- [{section.title}](#{section.anchor})" for section in document.sections)
    parts = [f"# {document.title}", contents]
    for section in document.sections:
        parts.append(f'<a id="{section.anchor}"></a>\n\n## {section.title}')
        parts += map(_block, section.blocks)
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    match block:
        case Words(text):
            return text.strip()
        case Table():
            return _table(block)
        case Picture(name, _, title):
            return f"![{title}]({name}.svg)"
        case Made(sources):
            return "\n".join(
                f"- `{each.command}` ({each.file}; {each.date}; load {each.load}; {each.machine})"
                + (f" **not whole: {each.ended}**" if each.ended else "")
                for each in sources
            )
        case Folded(title, blocks):
            return "\n\n".join([f"#### {title}", *map(_block, blocks)])


def _table(table: Table) -> str:
    rule = ("---", *(("---" if table.words else "--:") for _ in table.head[1:]))
    return "\n".join(_row(row) for row in (table.head, rule, *table.rows))


def _row(cells: Row | Sequence[str]) -> str:
    # A bar would end the cell, and a new line the table.
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
