from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.client.agent.patch import PatchError, apply_hunks, parse_patch

POEM = "roses\nviolets\n\nsugar\nyou\n"


def apply(text: str, body: str) -> str:
    (file,) = parse_patch(f"--- a/poem\n+++ b/poem\n{body}")
    return apply_hunks(text, file.hunks)


class TestReading:
    def test_names_lose_their_git_prefixes_and_time_stamps(self) -> None:
        patch = "--- a/old.py\t2025-01-01 00:00:00\n+++ b/old.py\t2025-01-02\n@@ -1 +1 @@\n-a\n+b\n"
        assert parse_patch(patch)[0].path == "old.py"

    def test_names_without_prefixes_stay_even_if_they_look_like_one(self) -> None:
        assert parse_patch("--- a/x\n+++ a/x\n@@ -1 +1 @@\n-a\n+b\n")[0].path == "a/x"
        assert parse_patch("--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n")[0].path == "x"

    def test_several_files_are_added_changed_and_deleted(self) -> None:
        patch = (
            "diff --git a/new b/new\nnew file mode 100644\nindex 000..111\n"
            "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+hi\n"
            "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n"
        )
        files = parse_patch(patch)
        assert [(file.path, file.adds, file.deletes, len(file.hunks)) for file in files] == [
            ("new", True, False, 1),
            ("gone", False, True, 1),
            ("x", False, False, 2),
        ]

    def test_removed_and_added_lines_may_look_like_file_names(self) -> None:
        (file,) = parse_patch(
            "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n--- old comment\n+++ new comment\n select 1\n"
        )
        assert apply_hunks("-- old comment\nselect 1\n", file.hunks) == "++ new comment\nselect 1\n"

    def test_words_before_the_first_file_are_passed_over(self) -> None:
        assert parse_patch("Here is the patch:\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")[0].path == "x"

    @pytest.mark.parametrize(
        ("patch", "reason"),
        [
            ("", "no change found"),
            ("just words", "no change found"),
            ("*** Begin Patch\n*** End Patch", "only unified diffs are understood"),
            ("@@ -1 +1 @@\n-a\n+b", "line 1 of the patch: a hunk needs"),
            ("--- a/x\n+++ b/x\n", "line 1 of the patch: no '@@ ... @@' hunk follows"),
            ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n a\n", "line 3 of the patch: this hunk changes nothing"),
            ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\nb\n", "line 5 of the patch: a line of a hunk starts with"),
            ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "renames are not supported"),
            ("diff --git a/x b/y\nrename from x\nrename to y\n", "line 2 of the patch: renames"),
            ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "changes of mode"),
            ("diff --git a/x b/x\nnew file mode 100644\n", "line 1 of the patch: this file has no '---'"),
            ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "binary"),
            ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+b\n", "both names"),
            ("--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n a\n+b\n", "x is added, so all its lines"),
            ("--- a/x\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "x is deleted, so no line"),
            ('--- "a/x\\t"\n+++ "b/x\\t"\n@@ -1 +1 @@\n-a\n+b\n', "quoted file name"),
            ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n\\ No newline at end of file\n", "nothing before it"),
        ],
    )
    def test_what_is_no_patch_is_refused_with_its_place(self, patch: str, reason: str) -> None:
        with pytest.raises(PatchError) as caught:
            parse_patch(patch)
        assert reason in str(caught.value)


class TestApplying:
    def test_a_hunk_goes_where_its_header_says(self) -> None:
        assert apply("a\nb\na\nb\n", "@@ -3,2 +3,2 @@\n a\n-b\n+c\n") == "a\nb\na\nc\n"

    def test_wrong_line_numbers_and_counts_do_no_harm_if_there_is_one_place(self) -> None:
        assert apply(POEM, "@@ -40,9 +40,1 @@ def f():\n violets\n \n-sugar\n+honey\n") == POEM.replace(
            "sugar", "honey"
        )

    def test_a_header_without_numbers_is_enough(self) -> None:
        assert apply(POEM, "@@\n-sugar\n+honey\n") == POEM.replace("sugar", "honey")
        assert apply(POEM, "@@ ... @@\n-sugar\n+honey\n") == POEM.replace("sugar", "honey")

    def test_an_empty_context_line_may_have_lost_its_blank(self) -> None:
        assert apply(POEM, "@@ -2,3 +2,3 @@\n violets\n\n-sugar\n+honey\n\n") == POEM.replace("sugar", "honey")

    def test_several_places_are_refused(self) -> None:
        with pytest.raises(PatchError, match="hunk 1 fits at lines 1, 3: add context"):
            apply("a\nb\na\nb\n", "@@ -7 +7 @@\n-a\n+c\n")

    def test_a_hunk_that_fits_nowhere_says_where_it_stopped_fitting(self) -> None:
        with pytest.raises(PatchError, match="at line 2 it expects 'tulips', but there is 'violets'"):
            apply(POEM, "@@ -1,2 +1,2 @@\n roses\n-tulips\n+x\n")
        with pytest.raises(PatchError, match="no line equals its first line 'daisies'"):
            apply(POEM, "@@ -1,2 +1,2 @@\n-daisies\n+x\n")
        with pytest.raises(PatchError, match="at line 6 it expects 'too', but there is the end of the file"):
            apply(POEM, "@@ -5,2 +5,2 @@\n you\n-too\n+x\n")

    def test_context_must_match_to_the_letter(self) -> None:
        with pytest.raises(PatchError, match="does not fit"):
            apply("  roses\n", "@@ -1 +1 @@\n-roses\n+x\n")

    def test_hunks_are_applied_in_their_order(self) -> None:
        body = "@@ -1 +1,2 @@\n-roses\n+red\n+roses\n@@ -5 +6 @@\n-you\n+me\n"
        assert apply(POEM, body) == "red\nroses\nviolets\n\nsugar\nme\n"
        with pytest.raises(PatchError, match="hunk 2 does not fit: no line after the hunk before it"):
            apply(POEM, "@@ -5 +5 @@\n-you\n+me\n@@ -1 +1 @@\n-roses\n+red\n")

    def test_lines_without_context_are_inserted_after_the_line_named(self) -> None:
        assert apply(POEM, "@@ -5,0 +6 @@\n+end\n") == POEM + "end\n"
        assert apply(POEM, "@@ -0,0 +1 @@\n+title\n") == "title\n" + POEM
        with pytest.raises(PatchError, match="no context and no valid line number"):
            apply(POEM, "@@ -9,0 +9 @@\n+end\n")

    def test_a_missing_last_newline_is_kept_added_and_removed(self) -> None:
        assert apply("a\nb", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n") == "c\nb"
        assert apply("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n") == "a\nb\n"
        assert apply("a\nb\n", "@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file\n") == "a\nc"
        assert apply("a\nb", "@@ -2 +2,2 @@\n b\n+c\n") == "a\nb\nc\n"

    def test_line_ends_of_the_file_are_kept(self) -> None:
        assert apply("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n") == "a\r\nc\r\n"
        assert apply("a\nb\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+c\r\n") == "a\nc\n"

    def test_only_line_feeds_separate_lines(self) -> None:
        assert apply("a\x0cb\u2028c\nd\n", "@@ -2 +2 @@\n-d\n+e\n") == "a\x0cb\u2028c\ne\n"


lines = st.lists(st.sampled_from(["a", "b", "", "-", "+ x", " y"]), max_size=12)


@given(lines, lines, st.integers(0, 3))
def test_what_difflib_writes_is_applied(old: list[str], new: list[str], context: int) -> None:
    before, after = ["".join(f"{line}\n" for line in text) for text in (old, new)]
    if before == after:
        return
    patch = "".join(
        difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/poem", "b/poem", n=context)
    )
    (file,) = parse_patch(patch)
    assert apply_hunks(before, file.hunks) == after
