"""The tools of a coding agent: look around in one folder, change files in it, run commands there.

Below: `files` (paths and writes), `patch` (unified diffs), `process` (commands). Above: an agent, which gets
`Workspace(root).tools()`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from turnwire.client.agent.files import MAX_FILE_BYTES, Folder, decode_text, write_all
from turnwire.client.agent.output import DEFAULT_LIMIT
from turnwire.client.agent.patch import FilePatch, PatchError, apply_hunks, parse_patch, split_lines
from turnwire.client.agent.process import run_shell
from turnwire.client.agent.tools import Tool, ToolError

try:
    import regex
    from pydantic import Field
except ImportError as error:
    msg = "workspace tools need pydantic and regex: pip install 'turnwire[agent]'"
    raise ImportError(msg) from error

_MAX_LISTED = 1000
_MAX_MATCHES = 200
_MAX_MATCH_LENGTH = 300
_MAX_LINE_LENGTH = 2000
_SEARCH_SECONDS = 10.0


class Workspace:
    """Tools confined to one folder.

    Files are read and written below the folder only: absolute paths, `..` and links that lead outside are refused.
    `run_command` merely *starts* in the folder, without the variables that look like secrets; it is no sandbox, and
    whatever it runs may do all that the user may do. Give the whole process a container where that matters.
    """

    def __init__(self, root: Path, *, max_output_bytes: int = DEFAULT_LIMIT) -> None:
        """Takes the folder and a bound for what one command or one read may return.

        Raises:
            NotADirectoryError: `root` is no folder.
        """
        self._folder = Folder(root)
        self._max_output_bytes = max_output_bytes
        # Calls run side by side, and an edit is a read and a write.
        self._writing = threading.Lock()

    @property
    def root(self) -> Path:
        """The folder, links followed."""
        return self._folder.root

    def tools(self) -> list[Tool]:
        """Returns the tools, for `ToolSet`."""
        return [
            Tool.from_function(function)
            for function in (
                self.list_files,
                self.search,
                self.read_file,
                self.edit_file,
                self.write_file,
                self.apply_patch,
                self.run_command,
            )
        ]

    def list_files(self, path: str = ".", pattern: str = "**") -> str:
        """Lists files below a folder, one path a line, without version control, caches and virtual environments.

        Args:
            path: Folder to look into, relative to the workspace root.
            pattern: Glob such as '*.py' (names anywhere below) or 'src/**/*.py' (relative to path).
        """
        found = [self._folder.relative(file) for file in self._folder.walk(path, pattern)]
        if not found:
            return "no files"
        shown = found[:_MAX_LISTED]
        if len(found) > len(shown):
            shown.append(f"[... {len(found) - _MAX_LISTED} more files: narrow path or pattern ...]")
        return "\n".join(shown)

    def search(self, pattern: str, path: str = ".", glob: str = "**") -> str:
        """Finds lines that match a regular expression, as 'path:line: text'; binary files are left out.

        Args:
            pattern: Python regular expression, looked for within each line.
            path: Folder or file to search, relative to the workspace root.
            glob: Only files that match this glob, such as '*.py'.
        """
        try:
            compiled = regex.compile(pattern)
        except regex.error as error:
            msg = f"pattern is not a regular expression: {error}"
            raise ToolError(msg) from error
        deadline = time.monotonic() + _SEARCH_SECONDS
        matches: list[str] = []
        for file in self._folder.walk(path, glob):
            name = self._folder.relative(file)
            for number, line in enumerate(_lines_to_search(file), 1):
                try:
                    hit = compiled.search(line, timeout=max(deadline - time.monotonic(), 0.001))
                except TimeoutError as error:
                    msg = f"the search took over {_SEARCH_SECONDS:g} s (in {name}): simplify pattern or narrow path"
                    raise ToolError(msg) from error
                if hit is None:
                    continue
                if len(matches) == _MAX_MATCHES:
                    return "\n".join(
                        [*matches, f"[... more than {_MAX_MATCHES} matches: narrow pattern, path or glob ...]"]
                    )
                matches.append(f"{name}:{number}: {_clipped(line, _MAX_MATCH_LENGTH)}")
        return "\n".join(matches) or "no matches"

    def read_file(
        self,
        path: str,
        start_line: Annotated[int, Field(ge=1)] = 1,
        end_line: Annotated[int, Field(ge=1)] | None = None,
    ) -> str:
        """Reads a text file, each line with its number and a tab before it.

        Args:
            path: File to read, relative to the workspace root.
            start_line: First line to show, counted from 1.
            end_line: Last line to show, inclusive; left out means to the end.
        """
        lines = split_lines(self._folder.read_text(path))
        if end_line is not None and end_line < start_line:
            msg = f"end_line {end_line} is before start_line {start_line}"
            raise ToolError(msg)
        if not lines:
            return "the file is empty"
        if start_line > len(lines):
            msg = f"start_line {start_line} is after the last line: {path!r} has {len(lines)} lines"
            raise ToolError(msg)
        shown: list[str] = []
        size = 0
        last = min(end_line or len(lines), len(lines))
        for number in range(start_line, last + 1):
            line = f"{number}\t{_clipped(lines[number - 1].rstrip(chr(13) + chr(10)), _MAX_LINE_LENGTH)}"
            size += len(line.encode(errors="replace")) + 1
            # Some room for the note, so that the bound of the tool set does not cut it out.
            if shown and size > self._max_output_bytes - 200:
                shown.append(f"[... lines {number} to {last} not shown: call again with start_line={number} ...]")
                break
            shown.append(line)
        return "\n".join(shown)

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replaces one piece of text in a file; the old text must occur exactly once.

        Args:
            path: File to change, relative to the workspace root.
            old: Text to replace, to the letter, without line numbers; take in lines around it to make it unique.
            new: Text to put in its place.
        """
        if not old:
            msg = "old is empty: use write_file to make a file"
            raise ToolError(msg)
        if old == new:
            msg = "old and new are the same: nothing to change"
            raise ToolError(msg)
        with self._writing:
            file = self._folder.existing_file(path)
            text = self._folder.read_text(path)
            if old not in text and "\r\n" in text:
                # read_file shows no line ends, so the model cannot know that they are CRLF.
                old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
            places = _places(text, old)
            if len(places) != 1:
                raise ToolError(_why_not_once(path, text, old, places))
            start = places[0]
            _write({file: text[:start] + new + text[start + len(old) :]})
        return f"edited {path} at line {text.count(chr(10), 0, start) + 1}"

    def write_file(self, path: str, content: str) -> str:
        """Makes a file, or replaces all of it; missing folders are made.

        Args:
            path: File to write, relative to the workspace root.
            content: The whole text of the file.
        """
        with self._writing:
            file = self._folder.writable_file(path)
            existed = file.exists()
            _write({file: content})
        return f"{'replaced' if existed else 'made'} {path} ({len(split_lines(content))} lines)"

    def apply_patch(self, patch: str) -> str:
        """Applies a unified diff to one or more files, all of it or nothing.

        Args:
            patch: Unified diff with '--- a/path', '+++ b/path' and '@@ -1,3 +1,4 @@' lines; '/dev/null' as old path
                adds a file, as new path deletes it. Context and removed lines must match to the letter.
        """
        with self._writing:
            try:
                changes, summary = self._plan(parse_patch(patch))
            except PatchError as error:
                msg = f"nothing was changed: {error}"
                raise ToolError(msg) from error
            _write(changes)
        return "\n".join(summary)

    async def run_command(self, command: str, timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60) -> str:
        """Runs a shell command in the workspace root and returns its exit code and output.

        Cancelling this is safe: the command and all it started in its group are killed first.

        Args:
            command: Command line for /bin/sh. It gets no input; what it leaves in the background is ended with it.
            timeout_seconds: When this time is up, the command is killed.
        """
        try:
            result = await run_shell(
                command,
                folder=self.root,
                timeout_seconds=timeout_seconds,
                # Some room for the exit code, so that the bound of the tool set does not cut a second time.
                max_output_bytes=max(self._max_output_bytes - 200, 2),
            )
        except (OSError, ValueError) as error:
            msg = f"the command could not be started: {error}"
            raise ToolError(msg) from error
        if result.timed_out:
            msg = f"killed after {timeout_seconds:g} s; output until then:\n{result.output or '(none)'}"
            raise ToolError(msg)
        return f"exit code: {result.exit_code}\n{result.output or '(no output)'}"

    def _plan(self, patches: list[FilePatch]) -> tuple[dict[Path, str | None], list[str]]:
        """Returns what all files hold afterwards, without touching any."""
        changes: dict[Path, str | None] = {}
        summary: list[str] = []
        for patch in patches:
            file = self._folder.writable_file(patch.path)
            exists = changes[file] is not None if file in changes else file.exists()
            if patch.adds and exists:
                msg = f"{patch.path} is to be added, but exists"
                raise PatchError(msg)
            if patch.deletes and (self.root / patch.path).is_symlink():
                msg = f"{patch.path} is a link: remove it with a command"
                raise PatchError(msg)
            staged = changes.get(file)
            text = "" if patch.adds else staged if staged is not None else self._text_to_patch(patch.path, exists)
            try:
                text = apply_hunks(text, patch.hunks)
            except PatchError as error:
                msg = f"{patch.path}: {error}"
                raise PatchError(msg) from error
            if patch.deletes and text:
                msg = f"{patch.path} is to be deleted, but the patch does not hold all of its lines"
                raise PatchError(msg)
            changes[file] = None if patch.deletes else text
            summary.append(f"{'added' if patch.adds else 'deleted' if patch.deletes else 'changed'} {patch.path}")
        return changes, summary

    def _text_to_patch(self, path: str, exists: bool) -> str:
        if not exists:
            msg = f"{path} does not exist: '--- /dev/null' adds a file"
            raise PatchError(msg)
        return self._folder.read_text(path)


def _write(files: Mapping[Path, str | None]) -> None:
    try:
        write_all(files)
    except (OSError, UnicodeEncodeError) as error:
        msg = f"could not be written: {error}"
        raise ToolError(msg) from error


def _lines_to_search(file: Path) -> list[str]:
    """Returns the lines of a text file; none for what is binary, too large or not readable."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            return []
        text = decode_text(file.read_bytes())
    except OSError:
        return []
    return [] if text is None else [line.rstrip("\r\n") for line in split_lines(text)]


def _clipped(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[:length]}[... {len(line) - length} characters left out ...]"


def _places(text: str, old: str) -> list[int]:
    """Returns where `old` starts, overlapping places included: also those make a replacement ambiguous."""
    places: list[int] = []
    start = text.find(old)
    while start >= 0:
        places.append(start)
        start = text.find(old, start + 1)
    return places


def _why_not_once(path: str, text: str, old: str, places: list[int]) -> str:
    if places:
        lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places[:10])
        return f"old occurs {len(places)} times in {path!r}, at lines {lines}: take in more lines around it"
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    if wanted:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() == wanted[0]:
                return (
                    f"old does not occur in {path!r}; its first line is at line {number}, but its indentation or what "
                    "follows differs: read_file shows the exact text"
                )
    return f"old does not occur in {path!r}: read_file shows the exact text"
