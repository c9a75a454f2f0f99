"""The published packages for Node, pinned in `tests/clients/node`, installed once into `.node-clients`.

Above it: Codex and the tests of the SDK for Node. Below it: npm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

_PINNED: Final = Path(__file__).parents[1] / "node"
_FOLDER: Final = Path(__file__).parents[3] / ".node-clients"
_FILES: Final = ("package.json", "package-lock.json")


@cache
def installed() -> Path:
    """Returns the folder whose `node_modules` has the packages; installs them if it has not, or others.

    Raises:
        RuntimeError: Node or npm are missing, or npm failed.
    """
    stamp = _FOLDER / "installed.json"
    wanted = "".join((_PINNED / name).read_text(encoding="utf-8") for name in _FILES)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return _FOLDER
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        msg = "these tests drive clients for Node: install node and npm, or leave out -m clients"
        raise RuntimeError(msg)
    _FOLDER.mkdir(exist_ok=True)
    for name in _FILES:
        shutil.copy(_PINNED / name, _FOLDER / name)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"npm ci failed: {done.stderr[-2000:]}"
        raise RuntimeError(msg)
    stamp.write_text(wanted, encoding="utf-8")
    return _FOLDER


def run_script(script: str, folder: Path, **variables: str) -> str:
    """Runs an ES module with the installed packages and returns what it printed.

    Args:
        script: Its text.
        folder: Where it is put.
        **variables: Of its environment.

    Raises:
        AssertionError: It failed; the message has what it said.
    """
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(installed() / "node_modules")
    path = folder / "script.mjs"
    path.write_text(script, encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    done = subprocess.run(
        ["node", path.name], cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
