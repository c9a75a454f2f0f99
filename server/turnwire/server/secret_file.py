"""Reads files that hold secrets, without a word of them in what is raised or logged.

Above it: keys of clients, and keys that seal. Below it: the file system.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)


def read_secrets(path: Path, what: str, error: type[Exception]) -> str:
    """Returns the text of a file of secrets; logs a warning if others can read it too.

    Args:
        path: The file.
        what: What it is called in the warning, such as `key file`.
        error: What to raise.

    Raises:
        error: It cannot be read; the text names the file and why.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = file.read()
    except OSError as trouble:
        msg = f"{path}: cannot be read: {trouble.strerror}"
        raise error(msg) from trouble
    except UnicodeDecodeError:
        # Not chained: the cause quotes the bytes, which may be a key.
        msg = f"{path}: cannot be read: not UTF-8 text"
        raise error(msg) from None
    if mode & stat.S_IROTH:
        _log.warning("the %s %s can be read by everybody (mode %03o); run chmod 600", what, path, mode)
    return text
