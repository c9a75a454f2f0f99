"""What `grpc-node` plays with, pinned in `node/`: `python -m turnwire.bench.drivers.node_packages` installs it.

Above it: the driver and the Makefile. Below it: npm. They are kept in the virtual environment, and go with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "node"
FOLDER: Final = Path(sys.prefix) / "share" / "turnwire-bench-node"
"""Has `node_modules`."""
_FILES: Final = ("package.json", "package-lock.json")
_STAMP: Final = "installed.json"
_COMMAND: Final = "python -m turnwire.bench.drivers.node_packages"


def _wanted() -> str:
    return "".join((SOURCE / name).read_text(encoding="utf-8") for name in _FILES)


def missing(folder: Path = FOLDER) -> str:
    """Returns why Node cannot play; empty where it can."""
    if shutil.which("node") is None:
        return "there is no node on the PATH"
    stamp = folder / _STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != _wanted():
        return f"its packages for Node are not installed: run `{_COMMAND}`"
    return ""


def install(folder: Path = FOLDER) -> None:
    """Installs the packages, unless they are there.

    Raises:
        RuntimeError: Node or npm are missing, or npm failed; its own words are in the message.
        OSError: The folder cannot be written.
    """
    if not missing(folder):
        return
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise RuntimeError("node and npm are needed, and not on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copy(SOURCE / name, folder / name)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"npm failed: {done.stderr.strip()[-2000:]}"
        raise RuntimeError(msg)
    (folder / _STAMP).write_text(_wanted(), encoding="utf-8")


def main() -> int:
    """Installs. Returns 0, or 1 where that is not possible."""
    try:
        install()
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"installed in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
