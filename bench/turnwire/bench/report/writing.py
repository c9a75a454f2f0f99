"""Writes the report's files.

Above it: the command, and the suites at their end. Below it: `building`, `markdown` and `page`.
"""

from __future__ import annotations

from pathlib import Path

from turnwire.bench.folder import Folder
from turnwire.bench.report.building import build
from turnwire.bench.report.markdown import markdown
from turnwire.bench.report.page import page


def write_report(folder: Folder, out: Path) -> Path:
    """Writes report.md, report.html and a file for each plot, in place of those that were there.

    Returns:
        Where the page is.

    Raises:
        OSError: A file cannot be written.
    """
    document = build(folder)
    out.mkdir(parents=True, exist_ok=True)
    for picture in document.pictures():
        (out / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
    (out / "report.md").write_text(markdown(document), encoding="utf-8")
    path = out / "report.html"
    path.write_text(page(document), encoding="utf-8")
    return path
