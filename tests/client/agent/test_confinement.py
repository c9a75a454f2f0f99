from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from turnwire.client.agent.tools import ToolError
from turnwire.client.agent.workspace import Workspace


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def escapes(root: Path) -> list[str]:
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "linked").symlink_to(root.parent)
    (root / "dangling.txt").symlink_to(root.parent / "not-there.txt")
    (root / "chain").symlink_to("linked")
    return [
        "../secret.txt",
        "sub/../../secret.txt",
        str(root.parent / "secret.txt"),
        "/etc/passwd",
        "link.txt",
        "linked/secret.txt",
        "linked/new.txt",
        "chain/new.txt",
        "dangling.txt",
        "~/../../../../../../etc/passwd",
    ]


def test_no_tool_reads_or_writes_outside(space: Workspace, root: Path, escapes: list[str]) -> None:
    before = contents(root.parent)
    for path in escapes:
        add = f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n"
        change = f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-secret\n+x\n"
        delete = f"--- {path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-secret\n"
        for attempt in (
            partial(space.read_file, path),
            partial(space.edit_file, path, "secret", "x"),
            partial(space.write_file, path, "x"),
            partial(space.list_files, path),
            partial(space.search, "secret", path),
            *(partial(space.apply_patch, patch) for patch in (add, change, delete)),
        ):
            with pytest.raises(ToolError) as caught:
                attempt()
            assert "outside the workspace" in str(caught.value)
    assert contents(root.parent) == before


def test_the_message_tells_links_from_paths(space: Workspace, escapes: list[str]) -> None:
    with pytest.raises(ToolError, match=r"'link.txt' leads through a link outside the workspace"):
        space.read_file(escapes[4])
    with pytest.raises(ToolError, match=r"'../secret.txt' leads outside the workspace"):
        space.read_file(escapes[0])


def test_listings_and_searches_do_not_follow_links_outside(space: Workspace, escapes: list[str]) -> None:
    assert escapes
    assert space.list_files() == "no files"
    assert space.search("secret") == "no matches"


def test_absolute_paths_and_links_inside_are_fine(space: Workspace, root: Path) -> None:
    (root / "real.txt").write_text("text\n")
    (root / "alias.txt").symlink_to("real.txt")
    assert space.read_file(str(root / "real.txt")) == "1\ttext"
    space.edit_file("alias.txt", "text", "changed")
    assert (root / "alias.txt").is_symlink()
    assert (root / "real.txt").read_text() == "changed\n"


def test_a_root_that_is_a_link_works(root: Path) -> None:
    (root / "a.txt").write_text("text\n")
    (root.parent / "alias").symlink_to(root)
    assert Workspace(root.parent / "alias").read_file("a.txt") == "1\ttext"


def test_a_root_that_is_no_folder_is_refused(root: Path) -> None:
    with pytest.raises(NotADirectoryError):
        Workspace(root / "missing")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "loop", "caf\udce9/\ud800"])
def test_impossible_paths_are_refused(space: Workspace, root: Path, path: str) -> None:
    (root / "loop").symlink_to("loop")
    with pytest.raises(ToolError):
        space.read_file(path)


def test_what_is_no_ordinary_file_is_not_opened(space: Workspace, root: Path) -> None:
    os.mkfifo(root / "fifo")
    for attempt in (
        partial(space.read_file, "fifo"),
        partial(space.write_file, "fifo", "x"),
        partial(space.read_file, "."),
    ):
        with pytest.raises(ToolError):
            attempt()
    assert space.search("x") == "no matches"
