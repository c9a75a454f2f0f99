"""Reads unified diffs and applies them to texts; pure, touches no file.

Used by `workspace` for `apply_patch`. Written for patches that models write: contents must match to the letter, while
line numbers and counts in `@@` headers, which models get wrong all the time, are hints at most. The parsers on PyPI
insist on the counts, and those that apply patches write to disk at once, file by file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HUNK_HEADER = re.compile(r"@@(?: -(?P<line>\d+)(?:,\d+)? \+\d+(?:,\d+)? @@)?")
_NO_NEWLINE = "\\ No newline at end of file"
_NOWHERE = "/dev/null"
_UNSUPPORTED = {
    "rename from": "renames are not supported: delete the old file and add the new one in full",
    "copy from": "copies are not supported: add the new file in full",
    "old mode": "changes of mode are not supported: use chmod in a command",
    "GIT binary patch": "binary patches are not supported",
    "Binary files": "binary patches are not supported",
    "*** Begin Patch": "only unified diffs are understood: '--- a/path', '+++ b/path', '@@ ... @@'",
}


class PatchError(ValueError):
    """The patch cannot be read, or does not fit the text; nothing was applied."""


@dataclass(frozen=True, slots=True)
class HunkLine:
    """One line of a hunk."""

    kind: str
    """`" "` for context, `"-"` for removed, `"+"` for added."""
    text: str
    """The line without its line end."""
    newline: bool = True
    """False only where the patch says that there is no newline at the end of the file."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One change at one place."""

    number: int
    """Counted from 1 within its file."""
    old_start: int | None
    """Line of the old text where the header claims it starts, from 1; None if the header does not say."""
    lines: tuple[HunkLine, ...]

    @property
    def old(self) -> list[str]:
        """The lines that must be there."""
        return [line.text for line in self.lines if line.kind != "+"]


@dataclass(frozen=True, slots=True)
class FilePatch:
    """All changes to one file."""

    path: str
    adds: bool
    """Whether the file must not exist yet."""
    deletes: bool
    """Whether the file is gone afterwards."""
    hunks: tuple[Hunk, ...]


def parse_patch(patch: str) -> list[FilePatch]:
    """Reads a unified diff, as `diff -u` and `git diff` write them, for one or more files.

    Raises:
        PatchError: It is none, or asks for something that is not supported; says at which line.
    """
    lines = [line.removesuffix("\r") for line in patch.split("\n")]
    if lines[-1] == "":
        lines.pop()
    files: list[FilePatch] = []
    index = 0
    announced: int | None = None
    while index < len(lines):
        line = lines[index]
        for beginning, reason in _UNSUPPORTED.items():
            if line.startswith(beginning):
                raise _at(index, reason)
        if line.startswith("diff --git "):
            _check_announced(announced)
            announced = index
        elif _starts_file(lines, index):
            announced = None
            file, index = _parse_file(lines, index)
            files.append(file)
            continue
        elif line.startswith("@@"):
            raise _at(index, "a hunk needs '--- a/path' and '+++ b/path' lines before it")
        index += 1
    _check_announced(announced)
    if not files:
        msg = "no change found: expected a unified diff with '--- a/path', '+++ b/path' and '@@ ... @@' lines"
        raise PatchError(msg)
    return files


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> str:
    """Returns `text` with all hunks applied; its line ends (LF or CRLF) stay as they are.

    A hunk goes where its header says if its lines are there, else to the only place where they are.

    Raises:
        PatchError: The lines of a hunk are nowhere, or at several places and not where the header says.
    """
    lines = split_lines(text)
    line_end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    bare = [line.rstrip("\r\n") for line in lines]
    result: list[str] = []
    done = 0
    for hunk in hunks:
        start = _locate(bare, hunk, done)
        result += lines[done:start]
        done = start
        for line in hunk.lines:
            if line.kind == "+":
                if result and not result[-1].endswith("\n"):
                    result[-1] += line_end
                result.append(line.text + (line_end if line.newline else ""))
                continue
            if line.kind == " ":
                result.append(lines[done])
            done += 1
    return "".join(result + lines[done:])


def split_lines(text: str) -> list[str]:
    """Splits at line feeds only, which stay; `str.splitlines` would also split at form feeds and others."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _starts_file(lines: Sequence[str], index: int) -> bool:
    return lines[index].startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ ")


def _parse_file(lines: Sequence[str], index: int) -> tuple[FilePatch, int]:
    old, new = _path(lines[index][4:]), _path(lines[index + 1][4:])
    start = index
    index += 2
    hunks: list[Hunk] = []
    while index < len(lines) and lines[index].startswith("@@"):
        hunk, index = _parse_hunk(lines, index, len(hunks) + 1)
        hunks.append(hunk)
    if not hunks:
        raise _at(start, "no '@@ ... @@' hunk follows these file names")
    adds, deletes = old == _NOWHERE, new == _NOWHERE
    if (adds or old.startswith("a/")) and (deletes or new.startswith("b/")):
        old, new = old.removeprefix("a/"), new.removeprefix("b/")
    if adds and deletes:
        raise _at(start, "both names are /dev/null")
    if not adds and not deletes and old != new:
        raise _at(start, _UNSUPPORTED["rename from"])
    kinds = {line.kind for hunk in hunks for line in hunk.lines}
    if adds and kinds != {"+"}:
        raise _at(start, f"{new} is added, so all its lines must start with '+'")
    if deletes and "+" in kinds:
        raise _at(start, f"{old} is deleted, so no line may start with '+'")
    return FilePatch(old if deletes else new, adds, deletes, tuple(hunks)), index


def _path(name: str) -> str:
    # `diff -u` puts a tab and a time stamp after the name.
    name = name.partition("\t")[0].rstrip()
    if name.startswith('"'):
        msg = f"quoted file name {name}: names with control characters or quotes are not supported"
        raise PatchError(msg)
    return name


def _parse_hunk(lines: Sequence[str], index: int, number: int) -> tuple[Hunk, int]:
    header = _HUNK_HEADER.match(lines[index])
    old_start = int(header["line"]) if header and header["line"] else None
    start = index
    index += 1
    body: list[HunkLine] = []
    while index < len(lines) and not _ends_hunk(lines, index):
        line = lines[index]
        if line == _NO_NEWLINE:
            if not body:
                raise _at(index, "nothing before it in this hunk")
            body[-1] = HunkLine(body[-1].kind, body[-1].text, newline=False)
        elif line == "":
            body.append(HunkLine(" ", ""))  # editors and models strip the one blank of an empty context line
        elif line[0] in " -+":
            body.append(HunkLine(line[0], line[1:]))
        else:
            raise _at(index, f"a line of a hunk starts with ' ', '-' or '+', not {line[0]!r}")
        index += 1
    # Stripped blank lines at the end are as likely a gap before the next file as context; either way they say nothing
    # about the change.
    end = index
    while body and lines[end - 1] == "":
        body.pop()
        end -= 1
    if all(line.kind == " " for line in body):
        raise _at(start, "this hunk changes nothing")
    return Hunk(number, old_start, tuple(body)), index


def _ends_hunk(lines: Sequence[str], index: int) -> bool:
    if lines[index].startswith(("@@", "diff --git ")):
        return True
    # A removed `-- x` looks like a file name, hence the look at the next two lines as well.
    return _starts_file(lines, index) and index + 2 < len(lines) and lines[index + 2].startswith("@@")


def _locate(lines: Sequence[str], hunk: Hunk, first: int) -> int:
    """Returns the index at which the old lines of the hunk are, at or after `first`."""
    old = hunk.old
    if not old:
        # Nothing to look for: with no old lines the header names the line *after* which to insert.
        if hunk.old_start is None or not first <= hunk.old_start <= len(lines):
            msg = f"hunk {hunk.number} has no context and no valid line number: add the line above or below as context"
            raise PatchError(msg)
        return hunk.old_start
    claimed = None if hunk.old_start is None else hunk.old_start - 1
    if claimed is not None and claimed >= first and list(lines[claimed : claimed + len(old)]) == old:
        return claimed
    places = [
        index
        for index in range(first, len(lines) - len(old) + 1)
        if lines[index] == old[0] and list(lines[index : index + len(old)]) == old
    ]
    if len(places) == 1:
        return places[0]
    if places:
        found = ", ".join(str(place + 1) for place in places[:5])
        msg = f"hunk {hunk.number} fits at lines {found}: add context or a right line number"
        raise PatchError(msg)
    raise PatchError(_why_nowhere(lines, hunk, first))


def _why_nowhere(lines: Sequence[str], hunk: Hunk, first: int) -> str:
    """Says how far the best match got, since that is where the patch is wrong."""
    old = hunk.old
    best, best_length = -1, 0
    for index in range(first, len(lines)):
        length = 0
        while length < len(old) and index + length < len(lines) and lines[index + length] == old[length]:
            length += 1
        if length > best_length:
            best, best_length = index, length
    prefix = f"hunk {hunk.number} does not fit: "
    if best < 0:
        return f"{prefix}no line{' after the hunk before it' if first else ''} equals its first line {old[0]!r}"
    line = best + best_length
    there = repr(lines[line]) if line < len(lines) else "the end of the file"
    return f"{prefix}at line {line + 1} it expects {old[best_length]!r}, but there is {there}"


def _check_announced(index: int | None) -> None:
    if index is not None:
        raise _at(index, "this file has no '---' and '+++' lines; use write_file for empty files")


def _at(index: int, reason: str) -> PatchError:
    return PatchError(f"line {index + 1} of the patch: {reason}")
