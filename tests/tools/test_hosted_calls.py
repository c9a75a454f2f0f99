from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.prompt.hosted_calls import HostedExchange, hosted_exchange, mcp_function_name
from turnwire.v1.item_pb2 import Item, McpCall, McpListTools, WebSearchCall

WORDS = st.one_of(st.text(max_size=80), st.from_regex(r"[a-z_-]{1,8}", fullmatch=True))


@pytest.mark.parametrize(
    ("label", "tool", "name"),
    [("docs", "search", "docs__search"), ("my-docs", "read_page", "my-docs__read_page"), ("a", "b", "a__b")],
)
def test_ordinary_tools_have_readable_names(label: str, tool: str, name: str) -> None:
    assert mcp_function_name(label, tool) == name


@given(label=WORDS, tool=WORDS)
def test_every_engine_takes_the_name(label: str, tool: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", mcp_function_name(label, tool))


@given(pairs=st.lists(st.tuples(WORDS, WORDS), min_size=2, max_size=2, unique=True))
def test_different_tools_have_different_names(pairs: list[tuple[str, str]]) -> None:
    assert len({mcp_function_name(*pair) for pair in pairs}) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a__b", "c"), ("a", "b__c")),
        (("a_", "b"), ("a", "_b")),
        (("a.b", "c"), ("a b", "c")),
        (("a" * 70, "x"), ("a" * 71, "x")),
    ],
)
def test_names_that_could_be_taken_for_each_other_differ(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert mcp_function_name(*one) != mcp_function_name(*other)


def test_a_hosted_call_looks_like_a_function_call_with_its_output() -> None:
    call = McpCall(server_label="docs", name="search", arguments='{"q":1}', output="found")
    assert hosted_exchange(Item(mcp_call=call)) == HostedExchange("docs__search", '{"q":1}', "found")
    failed = McpCall(server_label="docs", name="search", error="broken", approval_request_id="mcpr_1")
    assert hosted_exchange(Item(mcp_call=failed)) == HostedExchange("docs__search", "", "broken", approved=True)
    own = McpCall(server_label="turnwire", name="clock", output="12:00")
    assert hosted_exchange(Item(mcp_call=own)) == HostedExchange("clock", "", "12:00")
    assert hosted_exchange(Item(mcp_list_tools=McpListTools(server_label="docs"))) is None


@pytest.mark.parametrize(
    ("extra", "output"),
    [
        ('{"results":[{"title":"T","url":"U","snippet":"S"},{"title":"V"}]}', "[1] T\nU\nS\n\n[2] V"),
        ('{"error":"broken"}', "broken"),
        ('{"results":"nonsense"}', "Nothing was found."),
        ('{"results":[1,{}]}', "[2] "),
        ("", "Nothing was found."),
        ("{", "Nothing was found."),
    ],
)
def test_a_search_looks_like_a_call_with_what_was_found(extra: str, output: str) -> None:
    call = WebSearchCall(action='{"type":"search","query":"x"}', extra_json=extra)
    assert hosted_exchange(Item(web_search_call=call)) == HostedExchange("web_search", '{"query":"x"}', output)
