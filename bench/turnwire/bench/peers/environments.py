"""The environment that a gateway is installed into: one for each, so that what one needs is no other's concern.

Above it: the command. Below it: venv and pip, as everybody has them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from turnwire.bench.peers.port import Gateway, Unavailable

FOLDER: Final = Path(".venv-peers")
"""Where they are, below the working directory."""
_STAMP: Final = "installed.json"
_INSTALLING: Final = 900.0
"""Seconds that an installation may take."""
_ASKING: Final = 60.0


def python_of(gateway: Gateway, folder: Path = FOLDER) -> Path:
    """Returns the interpreter that runs a gateway; makes its environment where it is missing or made for another
    version. Takes from seconds to minutes then, and needs the package index.

    Raises:
        Unavailable: It cannot be installed; pip's own words are in the message.
    """
    if not gateway.requirements:
        return Path(sys.executable)
    home = folder.absolute() / gateway.name
    python = home / "bin" / "python"
    if installed(home) == list(gateway.requirements):
        return python
    (home / _STAMP).unlink(missing_ok=True)
    # Our own pip installs into it, which saves the time that one of its own would take.
    _run((sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)))
    pip = (sys.executable, "-m", "pip", "--python", str(python), "-q", "--disable-pip-version-check")
    _run((*pip, "install", *gateway.requirements))
    (home / _STAMP).write_text(json.dumps(gateway.requirements), encoding="utf-8")
    return python


def installed(home: Path) -> list[str]:
    """Returns the requirements that an environment was made for; none where it was not made to its end."""
    try:
        return [str(each) for each in json.loads((home / _STAMP).read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        return []


def version_of(gateway: Gateway, python: Path) -> str:
    """Returns the version of a gateway that is installed.

    Raises:
        Unavailable: It is not.
    """
    if not gateway.requirements:
        return version(gateway.name)
    package = gateway.requirements[0].partition("==")[0].partition("[")[0]
    words = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    return _run((str(python), "-c", words, package), _ASKING).strip()


def _run(command: tuple[str, ...], timeout: float = _INSTALLING) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[-1]} took more than {timeout:.0f} s to install") from error
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line and not line.startswith("WARNING")]
        raise Unavailable(f"{command[-1]} cannot be installed: {' '.join(errors)[-500:] or done.returncode}")
    return done.stdout
