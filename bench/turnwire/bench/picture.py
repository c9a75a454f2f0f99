"""Draws the demo's waterfall for the README: `python -m turnwire.bench.picture docs/demo.svg`."""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from turnwire.client.demo.sample import plain_pytest
from turnwire.client.demo.show import Plan, run_demo


def main() -> int:
    """Runs the demo's first part and saves what it printed; returns 0 when the project was repaired."""
    target = Path(sys.argv[1])
    console = Console(record=True, width=112, file=io.StringIO(), color_system="truecolor", highlight=False)
    console.print("$ turnwire demo --shape append --lanes 0", style="bold")
    with tempfile.TemporaryDirectory(prefix="turnwire-demo-") as folder, plain_pytest():
        repaired = asyncio.run(run_demo(console, Plan(("append",), 0), Path(folder)))
    console.save_svg(str(target), title="turnwire demo")
    return 0 if repaired else 1


if __name__ == "__main__":
    sys.exit(main())
