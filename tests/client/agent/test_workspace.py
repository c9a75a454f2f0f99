from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnwire.client.agent import files, workspace
from turnwire.client.agent.files import glob_regex
from turnwire.client.agent.tools import ToolError, ToolResult, ToolSet
from turnwire.client.agent.workspace import Workspace


def fill(root: Path, **contents: str) -> None:
    for name, content in contents.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class TestListFiles:
    def test_files_are_listed_in_order_without_caches_and_version_control(self, space: Workspace, root: Path) -> None:
        fill(root, b_dot_py="", a__z_dot_py="", a__y_dot_txt="")
        for skipped in (".git/config", "__pycache__/b.pyc", "a/__pycache__/z.pyc", "node_modules/m.js"):
            (root / skipped).parent.mkdir(parents=True, exist_ok=True)
            (root / skipped).write_text("")
        assert space.list_files() == "b.py\na/y.txt\na/z.py"
        assert space.list_files("a") == "a/y.txt\na/z.py"
        assert space.list_files(pattern="*.py") == "b.py\na/z.py"
        assert space.list_files("b.py") == "b.py"

    def test_nothing_and_nowhere_are_told_apart(self, space: Workspace) -> None:
        assert space.list_files() == "no files"
        with pytest.raises(ToolError, match="'missing' does not exist"):
            space.list_files("missing")

    def test_a_long_list_is_bounded(self, space: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workspace, "_MAX_LISTED", 2)
        fill(root, a="", b="", c="", d="")
        assert space.list_files() == "a\nb\n[... 2 more files: narrow path or pattern ...]"

    @pytest.mark.parametrize(
        ("pattern", "matching", "other"),
        [
            ("**", ["a", "a/b/c.py"], []),
            ("*.py", ["c.py", "a/b/c.py"], ["c.pyc", "c.py/x"]),
            ("a/*.py", ["a/c.py"], ["c.py", "a/b/c.py", "x/a/c.py"]),
            ("a/**/*.py", ["a/c.py", "a/b/c.py"], ["c.py"]),
            ("**/b/*", ["b/c", "a/b/c"], ["a/b/c/d"]),
            ("a/", ["a/b", "a/b/c"], ["a", "b/a"]),
            ("?.py", ["c.py", "a/d.py"], ["cc.py"]),
            ("[x].py", ["[x].py"], ["x.py"]),
        ],
    )
    def test_globs(self, pattern: str, matching: list[str], other: list[str]) -> None:
        compiled = glob_regex(pattern)
        assert [path for path in matching + other if compiled.fullmatch(path)] == matching


class TestSearch:
    def test_matches_come_with_file_and_line(self, space: Workspace, root: Path) -> None:
        fill(root, a_dot_py="one\ntwo\nthree\n", b__c_dot_txt="two\r\n")
        (root / "binary.bin").write_bytes(b"two\0two")
        (root / "latin.txt").write_bytes(b"two caf\xe9")
        assert space.search("tw[o]") == "a.py:2: two\nb/c.txt:1: two"
        assert space.search("two$", glob="*.txt") == "b/c.txt:1: two"
        assert space.search("^t", "a.py") == "a.py:2: two\na.py:3: three"

    def test_results_are_bounded_in_number_and_length(self, space: Workspace, root: Path) -> None:
        fill(root, a="x" * 1000 + "\n" + "x\n" * 500)
        lines = space.search("x").split("\n")
        assert lines[0] == "a:1: " + "x" * 300 + "[... 700 characters left out ...]"
        assert lines[-1] == "[... more than 200 matches: narrow pattern, path or glob ...]"
        assert len(lines) == 201

    def test_a_bad_pattern_is_explained(self, space: Workspace) -> None:
        with pytest.raises(ToolError, match="pattern is not a regular expression: missing"):
            space.search("(")

    async def test_a_pattern_that_explodes_is_given_up_and_blocks_nobody(
        self, space: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(workspace, "_SEARCH_SECONDS", 0.2)
        fill(root, a="a" * 60 + "!\n")
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        beating = asyncio.create_task(beat())
        async with asyncio.timeout(10):
            result = await ToolSet(space.tools()).run("search", '{"pattern": "^(a|aa)+$"}')
        beating.cancel()
        assert result.failed
        assert "the search took over 0.2 s (in a)" in result.output
        assert beats > 10


class TestReadFile:
    def test_lines_are_numbered_and_may_be_chosen(self, space: Workspace, root: Path) -> None:
        fill(root, a="one\ntwo\nthree")
        assert space.read_file("a") == "1\tone\n2\ttwo\n3\tthree"
        assert space.read_file("a", 2) == "2\ttwo\n3\tthree"
        assert space.read_file("a", 2, 2) == "2\ttwo"
        assert space.read_file("a", 3, 99) == "3\tthree"

    def test_lines_that_do_not_exist_are_refused(self, space: Workspace, root: Path) -> None:
        fill(root, a="one\n", empty="")
        with pytest.raises(ToolError, match="'a' has 1 lines"):
            space.read_file("a", 2)
        with pytest.raises(ToolError, match="end_line 1 is before start_line 2"):
            space.read_file("a", 2, 1)
        assert space.read_file("empty") == "the file is empty"

    def test_a_long_file_says_how_to_go_on(self, root: Path) -> None:
        fill(root, a="x" * 99 + "\n" + ("y" * 99 + "\n") * 99)
        shown = Workspace(root, max_output_bytes=1000).read_file("a").split("\n")
        assert shown[-1] == "[... lines 8 to 100 not shown: call again with start_line=8 ...]"
        assert len(shown) == 8

    def test_a_long_line_is_clipped(self, space: Workspace, root: Path) -> None:
        fill(root, a="x" * 3000)
        assert space.read_file("a").endswith("x[... 1000 characters left out ...]")

    def test_what_is_no_readable_text_is_refused(
        self, space: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "bin").write_bytes(b"\0\1")
        (root / "latin").write_bytes(b"caf\xe9")
        fill(root, big="x" * 101)
        monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
        for path, reason in [
            ("bin", "binary or not UTF-8"),
            ("latin", "binary or not UTF-8"),
            ("big", "has 101 bytes, more than 100"),
            ("missing", "does not exist"),
            (".", "is a folder"),
        ]:
            with pytest.raises(ToolError, match=reason):
                space.read_file(path)


class TestEditFile:
    def test_one_place_is_replaced_and_mode_and_line_ends_stay(self, space: Workspace, root: Path) -> None:
        (root / "a.sh").write_bytes(b"one\r\ntwo\r\nthree\r\n")
        (root / "a.sh").chmod(0o751)
        assert space.edit_file("a.sh", "two\nthree", "2\n3") == "edited a.sh at line 2"
        assert (root / "a.sh").read_bytes() == b"one\r\n2\r\n3\r\n"
        assert stat.S_IMODE((root / "a.sh").stat().st_mode) == 0o751

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("x", "y", "old occurs 2 times in 'a', at lines 1, 3"),
            ("four", "y", "old does not occur in 'a': read_file shows"),
            ("two\nthree", "y", "its first line is at line 2, but its indentation"),
            ("", "y", "old is empty"),
            ("two", "two", "old and new are the same"),
        ],
    )
    def test_what_is_not_there_exactly_once_is_refused(
        self, space: Workspace, root: Path, old: str, new: str, reason: str
    ) -> None:
        fill(root, a="x\n  two\nx\n")
        with pytest.raises(ToolError) as caught:
            space.edit_file("a", old, new)
        assert reason in str(caught.value)
        assert (root / "a").read_text() == "x\n  two\nx\n"

    def test_overlapping_places_are_two(self, space: Workspace, root: Path) -> None:
        fill(root, a="aaa")
        with pytest.raises(ToolError, match="occurs 2 times"):
            space.edit_file("a", "aa", "b")

    async def test_edits_of_one_file_at_the_same_time_all_count(self, space: Workspace, root: Path) -> None:
        fill(root, a="".join(f"<{number}>\n" for number in range(40)))
        tools = ToolSet(space.tools())
        calls = [
            tools.run("edit_file", json.dumps({"path": "a", "old": f"<{number}>", "new": f"[{number}]"}))
            for number in range(40)
        ]
        assert not any(result.failed for result in await asyncio.gather(*calls))
        assert (root / "a").read_text() == "".join(f"[{number}]\n" for number in range(40))

    def test_a_write_that_fails_leaves_the_file_and_nothing_else(
        self, space: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(root, a="one\n")

        def refuse(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", refuse)
        with pytest.raises(ToolError, match="No space left"):
            space.edit_file("a", "one", "two")
        assert snapshot(root) == {"a": b"one\n"}


class TestWriteFile:
    def test_a_file_is_made_with_its_folders_or_replaced(self, space: Workspace, root: Path) -> None:
        assert space.write_file("a/b/c.txt", "one\ntwo\n") == "made a/b/c.txt (2 lines)"
        assert space.write_file("a/b/c.txt", "") == "replaced a/b/c.txt (0 lines)"
        assert (root / "a/b/c.txt").read_text() == ""

    def test_a_new_file_has_the_mode_that_a_shell_would_give_it(self, space: Workspace, root: Path) -> None:
        space.write_file("a", "")
        (root / "b").touch()
        assert (root / "a").stat().st_mode == (root / "b").stat().st_mode

    def test_a_folder_or_a_file_in_the_way_is_refused(self, space: Workspace, root: Path) -> None:
        fill(root, a="", folder__x="")
        for path, reason in [("folder", "cannot be written"), (".", "cannot be written"), ("a/b", "'a' is a file")]:
            with pytest.raises(ToolError, match=reason):
                space.write_file(path, "x")

    def test_text_that_is_no_unicode_is_refused(self, space: Workspace, root: Path) -> None:
        with pytest.raises(ToolError, match="surrogates"):
            space.write_file("sub/a", "\ud800")
        assert list(root.iterdir()) == []


class TestApplyPatch:
    ADD = "--- /dev/null\n+++ b/new/file\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    CHANGE = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    DELETE = "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"

    def test_files_are_added_changed_and_deleted(self, space: Workspace, root: Path) -> None:
        fill(root, a="one\ntwo\n", gone="bye\n")
        (root / "a").chmod(0o700)
        assert space.apply_patch(self.ADD + self.CHANGE + self.DELETE) == "added new/file\nchanged a\ndeleted gone"
        assert snapshot(root) == {"a": b"one\n2\n", "new/file": b"one\ntwo\n"}
        assert stat.S_IMODE((root / "a").stat().st_mode) == 0o700

    @pytest.mark.parametrize(
        ("last", "reason"),
        [
            ("--- a/b\n+++ b/b\n@@ -1 +1 @@\n-nope\n+x\n", "b: hunk 1 does not fit"),
            ("--- a/missing\n+++ b/missing\n@@ -1 +1 @@\n-a\n+b\n", "missing does not exist"),
            ("--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n", "b is to be added, but exists"),
            ("--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", "b is to be deleted, but the patch does not hold all"),
            ("--- a/link\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-b\n-c\n", "link is a link"),
            ("--- a/bin\n+++ b/bin\n@@ -1 +1 @@\n-a\n+b\n", "binary"),
            ("--- a/gone\n+++ b/gone\n@@ -1 +1 @@\n-bye\n+b\n", "gone does not exist"),
        ],
    )
    def test_if_one_file_does_not_fit_none_is_touched(
        self, space: Workspace, root: Path, last: str, reason: str
    ) -> None:
        fill(root, a="one\ntwo\n", gone="bye\n", b="b\nc\n")
        (root / "bin").write_bytes(b"\0")
        (root / "link").symlink_to("b")
        before = snapshot(root)
        with pytest.raises(ToolError) as caught:
            space.apply_patch(self.ADD + self.CHANGE + self.DELETE + last)
        assert reason in str(caught.value)
        assert snapshot(root) == before
        assert not (root / "new").exists()

    @pytest.mark.parametrize("failing", ["a", "new/file"])
    def test_if_the_disk_fails_in_between_everything_is_put_back(
        self, space: Workspace, root: Path, failing: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(root, a="one\ntwo\n", gone="bye\n")
        before = snapshot(root)
        replace = os.replace

        def fail_once(source: Path, target: Path) -> None:
            if target == root / failing:
                raise OSError(5, "Input/output error")
            replace(source, target)

        monkeypatch.setattr(os, "replace", fail_once)
        with pytest.raises(ToolError, match="Input/output error"):
            space.apply_patch(self.DELETE + self.ADD + self.CHANGE)
        assert snapshot(root) == before
        assert not (root / "new").exists()

    def test_a_file_may_be_patched_twice_in_one_patch(self, space: Workspace, root: Path) -> None:
        fill(root, a="one\ntwo\n")
        space.apply_patch(self.CHANGE + "--- a/a\n+++ b/a\n@@ -2 +2 @@\n-2\n+zwei\n")
        assert (root / "a").read_text() == "one\nzwei\n"


class TestRunCommand:
    async def test_exit_code_and_output_are_returned_and_a_failing_command_is_no_failed_call(
        self, space: Workspace
    ) -> None:
        tools = ToolSet(space.tools())
        assert await tools.run("run_command", '{"command": "echo hi; exit 2"}') == ToolResult(
            "exit code: 2\nhi\n", False
        )
        assert (await tools.run("run_command", '{"command": "true"}')).output == "exit code: 0\n(no output)"

    async def test_time_out_is_a_failed_call_with_the_output_until_then(self, space: Workspace) -> None:
        result = await ToolSet(space.tools()).run(
            "run_command", '{"command": "echo hi; sleep 60", "timeout_seconds": 0.5}'
        )
        assert result == ToolResult("killed after 0.5 s; output until then:\nhi\n", failed=True)

    async def test_impossible_time_outs_and_commands_are_refused(self, space: Workspace) -> None:
        tools = ToolSet(space.tools())
        for arguments in ('{"command": "true", "timeout_seconds": 0}', '{"command": "true", "timeout_seconds": 1e9}'):
            assert "- timeout_seconds: " in (await tools.run("run_command", arguments)).output
        assert "could not be started" in (await tools.run("run_command", '{"command": "a\\u0000b"}')).output

    async def test_secrets_of_the_environment_are_not_passed_on(
        self, space: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SOME_API_KEY", "sesame")
        assert "sesame" not in await space.run_command("env")

    async def test_output_is_cut_once_only(self, root: Path) -> None:
        tools = ToolSet(Workspace(root, max_output_bytes=1000).tools(), max_output_bytes=1000)
        output = (await tools.run("run_command", '{"command": "head -c 100000 /dev/zero | tr \'\\\\0\' x"}')).output
        assert output.count("bytes left out") == 1
        assert output.startswith("exit code: 0\n")


def test_the_tools_are_described_and_their_arguments_too(space: Workspace) -> None:
    definitions = ToolSet(space.tools()).definitions()
    assert [each.name for each in definitions] == [
        "list_files",
        "search",
        "read_file",
        "edit_file",
        "write_file",
        "apply_patch",
        "run_command",
    ]
    for each in definitions:
        assert each.description
        properties = json.loads(each.parameters_json)["properties"]
        assert all("description" in described for described in properties.values())


def test_without_regex_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['regex'] = None\n"
        "try:\n    import turnwire.client.agent.workspace\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert "pip install 'turnwire[agent]'" in done.stdout
