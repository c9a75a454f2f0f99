"""Writes the report of a folder of result files: `python -m turnwire.bench.report FOLDER [--out DIR]`.

Above it: people, the Makefile and the suites. Below it: `building`, and what writes Markdown and HTML.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from turnwire.bench.folder import read_folder, unusable
from turnwire.bench.report.writing import write_report


def main() -> int:
    """Writes, and says what. Returns 0, or 2 where there is no such folder or it cannot be written to."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.report",
        description=(
            "Writes a report of every result file in a folder: report.md with its plots beside it, and report.html, "
            "one page that needs nothing else. Files are found by their content; those that cannot be read are named "
            "in the report, and what was not measured is said with the command that measures it."
        ),
    )
    parser.add_argument("folder", type=Path, help="where result files (JSON) lie, such as bench-results")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report goes [FOLDER]")
    given = parser.parse_args()
    try:
        folder = read_folder(given.folder)
        page = write_report(folder, given.out or given.folder)
    except OSError as error:
        print(unusable(error), file=sys.stderr)
        return 2
    for broken in folder.broken:
        print(f"{broken.name} could not be read: {broken.reason}", file=sys.stderr)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
