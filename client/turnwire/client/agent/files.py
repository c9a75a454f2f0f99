"""Files below one folder: paths that cannot leave it, listings, and writes that are whole or not at all.

Used by `workspace`. Blocking; the tools call it from threads. It guards against mistakes of a model, not against
somebody who swaps links while it works.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from turnwire.client.agent.tools import ToolError

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Files larger than this are not read into memory."""

SKIPPED_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        "node_modules",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
    }
)
"""Folders that hold no work of a person; listings and searches leave them out."""

_BINARY_PROBE = 8192


class Folder:
    """A folder, and the files below it."""

    def __init__(self, root: Path) -> None:
        """Takes the folder.

        Raises:
            NotADirectoryError: It is none.
        """
        self.root = root.resolve()
        if not self.root.is_dir():
            msg = f"{root} is not a folder"
            raise NotADirectoryError(msg)

    def resolve(self, path: str) -> Path:
        """Returns where `path` really is, links followed; the file itself need not exist.

        Raises:
            ToolError: It is outside the folder, or no path at all.
        """
        try:
            resolved = (self.root / path).resolve()
            # Some tools join several names to one path; refuse early what the system would refuse later.
            os.fsencode(resolved)
        except (OSError, RuntimeError, ValueError) as error:
            msg = f"{path!r} is not a usable path: {error}"
            raise ToolError(msg) from error
        if not resolved.is_relative_to(self.root):
            how = "leads" if Path(path).is_absolute() or ".." in Path(path).parts else "leads through a link"
            msg = f"{path!r} {how} outside the workspace: use paths relative to its root"
            raise ToolError(msg)
        return resolved

    def relative(self, path: Path) -> str:
        """Returns the path of a file as the model knows it, with `/` between names."""
        return path.relative_to(self.root).as_posix()

    def existing_file(self, path: str) -> Path:
        """Returns where an ordinary file is.

        Raises:
            ToolError: There is none at `path`, or it is outside the folder.
        """
        resolved = self.resolve(path)
        mode = _mode(resolved)
        if mode is None:
            msg = f"{path!r} does not exist: list_files shows what does"
        elif stat.S_ISDIR(mode):
            msg = f"{path!r} is a folder: list_files shows its files"
        elif not stat.S_ISREG(mode):
            msg = f"{path!r} is not an ordinary file"
        else:
            return resolved
        raise ToolError(msg)

    def writable_file(self, path: str) -> Path:
        """Returns where a file is or may be made.

        Raises:
            ToolError: Something else than an ordinary file is in the way, or it is outside the folder.
        """
        resolved = self.resolve(path)
        mode = _mode(resolved)
        if resolved == self.root or (mode is not None and not stat.S_ISREG(mode)):
            msg = f"{path!r} is a folder or another thing that cannot be written as a file"
            raise ToolError(msg)
        for parent in resolved.parents:
            if parent.exists():
                if not parent.is_dir():
                    msg = f"{path!r} cannot be made: {self.relative(parent)!r} is a file"
                    raise ToolError(msg)
                break
        return resolved

    def read_text(self, path: str) -> str:
        """Returns the whole text of a file, line ends as they are.

        Raises:
            ToolError: It is not there, too large, or no UTF-8 text.
        """
        resolved = self.existing_file(path)
        size = resolved.stat().st_size
        if size > MAX_FILE_BYTES:
            msg = f"{path!r} has {size} bytes, more than {MAX_FILE_BYTES}: use run_command with head, tail or grep"
            raise ToolError(msg)
        data = resolved.read_bytes()
        text = decode_text(data)
        if text is None:
            msg = f"{path!r} is binary or not UTF-8 text ({len(data)} bytes)"
            raise ToolError(msg)
        return text

    def walk(self, path: str, pattern: str) -> Iterator[Path]:
        """Yields the ordinary files below `path` whose names match, in order; links to folders are not followed.

        Raises:
            ToolError: `path` does not exist or is outside the folder.
        """
        start = self.resolve(path)
        if start.is_file():
            yield start
            return
        if not start.is_dir():
            msg = f"{path!r} does not exist: list_files shows what does"
            raise ToolError(msg)
        matches = glob_regex(pattern)
        for folder, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
            for name in sorted(names):
                file = Path(folder, name)
                if not matches.fullmatch(file.relative_to(start).as_posix()):
                    continue
                with contextlib.suppress(OSError, RuntimeError):
                    if file.is_file() and file.resolve().is_relative_to(self.root):
                        yield file


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Compiles a glob: `*` and `?` stay within a name, `**` crosses folders; without `/` it matches names anywhere."""
    if "/" not in pattern.removesuffix("/"):
        pattern = f"**/{pattern}"
    if pattern.endswith("/"):
        pattern += "**"
    regex, index = "", 0
    while index < len(pattern):
        if pattern.startswith("**/", index):
            regex, index = regex + "(?:[^/]+/)*", index + 3
        elif pattern.startswith("**", index):
            regex, index = regex + ".*", index + 2
        elif pattern[index] == "*":
            regex, index = regex + "[^/]*", index + 1
        elif pattern[index] == "?":
            regex, index = regex + "[^/]", index + 1
        else:
            regex, index = regex + re.escape(pattern[index]), index + 1
    return re.compile(regex, re.DOTALL)


def decode_text(data: bytes) -> str | None:
    """Returns the text in `data`, or None if it is binary or not UTF-8."""
    if b"\0" in data[:_BINARY_PROBE]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def write_all(files: Mapping[Path, str | None]) -> None:
    """Writes or (None) deletes several files, all or none; modes stay, missing folders are made.

    Every content is on disk beside its place before the first file changes, and what has changed is put back if a
    later one fails.

    Raises:
        OSError: Something could not be written. Everything is as it was, or the message names what could not be put
            back.
    """
    staged: dict[Path, Path] = {}
    undo: list[tuple[Path, bytes | None, int]] = []
    made: list[Path] = []
    try:
        for path, text in files.items():
            if text is not None:
                made += _make_folders(path.parent)
                staged[path] = _stage(path, text)
        for path in files:
            if len(files) > 1:  # a single one is replaced in one step, so there is nothing to put back
                undo.append((path, *_snapshot(path)))
            if path in staged:
                os.replace(staged[path], path)
                del staged[path]
            else:
                path.unlink()
    except BaseException as error:
        damaged = [str(path) for path, content, mode in reversed(undo) if not _restore(path, content, mode)]
        for path in staged.values():
            path.unlink(missing_ok=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if damaged:
            msg = f"{error}; could not put back {', '.join(damaged)}"
            raise OSError(msg) from error
        raise


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ToolError(str(error)) from error


def _make_folders(folder: Path) -> list[Path]:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    missing.reverse()
    for each in missing:
        each.mkdir(exist_ok=True)
    return missing


def _stage(path: Path, text: str) -> Path:
    """Writes the text to a new file in the same folder, so that a rename puts it in place."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            mode = _mode(path)
            os.fchmod(file.fileno(), stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _snapshot(path: Path) -> tuple[bytes | None, int]:
    mode = _mode(path)
    return (None, 0) if mode is None else (path.read_bytes(), stat.S_IMODE(mode))


def _restore(path: Path, content: bytes | None, mode: int) -> bool:
    try:
        if content is None:
            path.unlink(missing_ok=True)
        elif path.exists() and path.read_bytes() == content:
            return True
        else:
            path.write_bytes(content)
            path.chmod(mode)
    except OSError:
        return False
    return True


def _umask() -> int:
    # The umask can only be read by setting it, which another thread might notice; Linux also tells it in a file.
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022
