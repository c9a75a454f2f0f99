from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.engine.chat.history import Encoded, History, Style, extend, missing
from turnwire.server.engine.chat.messages import Media
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.session.transcript import EMPTY, Origin, Transcript

from .scene import grown, item, plain_style

PNG = "data:image/png;base64,AAAA"


def render(transcript: Transcript, style: Style, tally: Encoded | None = None) -> History:
    parent, segments = missing(transcript, style)
    return extend(parent, segments, style, tally or Encoded())


def messages(transcript: Transcript, style: Style | None = None, **changes: Any) -> list[dict[str, Any]]:
    history = render(transcript, style or plain_style(**changes))
    found: list[dict[str, Any]] = json.loads(b"[" + b",".join(history.joined()) + b"]")
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(call_id: str, name: str = "read", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(call_id: str, what: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": what}


def called(call_id: str, name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_users_and_assistants_are_messages() -> None:
    chain = grown(EMPTY, user("Hi"), assistant("Ho"), user("Bye"))
    assert messages(chain) == [user("Hi"), {"role": "assistant", "content": "Ho"}, user("Bye")]


def test_an_assistants_reasoning_text_and_calls_are_one_message() -> None:
    chain = grown(EMPTY, reasoning("hm"), assistant("Let me see."), call("c1"), call("c2", "list"))
    chain = grown(chain, output("c1", "one"), output("c2", "two"))
    assert messages(chain, reasoning_field="reasoning_content") == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [called("c1"), called("c2", "list")],
        },
        tool("c1", "one"),
        tool("c2", "two"),
    ]


def test_a_message_split_over_segments_is_still_one() -> None:
    chain = grown(grown(grown(EMPTY, user("Hi"), reasoning("hm")), assistant("Ho")), call("c1"))
    split = messages(grown(chain, output("c1", "x")), reasoning_field="reasoning")
    whole = grown(EMPTY, user("Hi"), reasoning("hm"), assistant("Ho"), call("c1"), output("c1", "x"))
    assert split == messages(whole, reasoning_field="reasoning")
    assert [each["role"] for each in split] == ["user", "assistant", "tool"]


def test_what_is_still_open_is_sent_as_it_stands_and_may_grow_afterwards() -> None:
    style = plain_style(reasoning_field="reasoning")
    first = grown(EMPTY, user("Hi"), assistant("Ho"))
    assert messages(first, style)[-1] == {"role": "assistant", "content": "Ho"}
    second = grown(first, call("c1"))
    other = grown(first, call("c9"))
    assert messages(second, style)[-1]["tool_calls"] == [called("c1")]
    assert messages(other, style)[-1]["tool_calls"] == [called("c9")]
    assert messages(first, style)[-1] == {"role": "assistant", "content": "Ho"}


def test_rounds_of_calls_are_messages_of_their_own() -> None:
    chain = grown(EMPTY, call("c1"), output("c1", "a"), call("c2"), output("c2", "b"), assistant("Done."))
    assert [each["role"] for each in messages(chain)] == ["assistant", "tool", "assistant", "tool", "assistant"]


def test_words_behind_a_call_begin_another_message() -> None:
    chain = grown(EMPTY, call("c1"), assistant("So."), reasoning("hm"), assistant("On."))
    found = messages(chain, reasoning_field="reasoning")
    assert [each.get("content") for each in found] == [None, "So.", "On."]


def test_reasoning_is_left_out_where_the_upstream_has_no_field_for_it() -> None:
    assert messages(grown(EMPTY, reasoning("hm"), assistant("Ho"))) == [{"role": "assistant", "content": "Ho"}]
    assert messages(grown(EMPTY, reasoning("hm"), user("Hi"))) == [user("Hi")]


def test_reasoning_alone_is_a_message_with_empty_content() -> None:
    found = messages(grown(EMPTY, reasoning("hm"), user("Hi")), reasoning_field="reasoning")
    assert found[0] == {"role": "assistant", "content": "", "reasoning": "hm"}


def test_sealed_reasoning_says_nothing() -> None:
    sealed: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": "xyz"}
    assert messages(grown(EMPTY, sealed, user("Hi")), reasoning_field="reasoning") == [user("Hi")]


def test_a_custom_tools_input_becomes_the_one_argument_of_its_function() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'a "b"\n'}
    answer = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
    found = messages(grown(EMPTY, custom, answer))
    assert found[0]["tool_calls"] == [called("c1", "patch", json.dumps({"input": 'a "b"\n'}, separators=(",", ":")))]
    assert found[1] == tool("c1", "ok")


def test_namespaces_are_prefixes_of_names() -> None:
    found = messages(grown(EMPTY, call("c1", "read", namespace="fs"), call("c2", "fs.read")))
    assert [each["function"]["name"] for each in found[0]["tool_calls"]] == ["fs__read", "fs__read"]


def test_a_hosted_call_is_a_call_with_its_output() -> None:
    hosted = {"type": "mcp_call", "id": "mcp_1", "server_label": "turnwire", "name": "add", "arguments": '{"a":1}'}
    chain = grown(EMPTY, user("Hi"), hosted | {"output": "2"}, hosted | {"id": "mcp_2", "error": "no"})
    assert messages(chain)[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [called("mcp_1", "add", '{"a":1}'), called("mcp_2", "add", '{"a":1}')],
        },
        tool("mcp_1", "2"),
        tool("mcp_2", "no"),
    ]


def test_a_hosted_call_of_a_later_pass_is_a_round_of_its_own() -> None:
    hosted = {"type": "mcp_call", "server_label": "turnwire", "name": "add", "arguments": "{}", "output": "2"}
    chain = grown(grown(EMPTY, hosted | {"id": "mcp_1"}), hosted | {"id": "mcp_2"}, assistant("Done."))
    assert [each["role"] for each in messages(chain)] == ["assistant", "tool", "assistant", "tool", "assistant"]


def test_hosted_outputs_stand_before_those_of_the_client() -> None:
    hosted = {"type": "mcp_call", "id": "mcp_1", "server_label": "turnwire", "name": "add", "arguments": "{}"}
    chain = grown(grown(EMPTY, call("c1"), hosted | {"output": "2"}), output("c1", "x"))
    found = messages(chain)
    assert len(found[0]["tool_calls"]) == 2
    assert found[1:] == [tool("mcp_1", "2"), tool("c1", "x")]


def test_images_are_sent_where_the_model_takes_them() -> None:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": PNG, "detail": "original"},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
    ]
    found = messages(grown(EMPTY, {"role": "user", "content": parts}))
    assert found[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": PNG},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
    ],
)
def test_what_the_model_cannot_take_is_refused(part: dict[str, Any]) -> None:
    chain = grown(EMPTY, {"role": "user", "content": [part]})
    with pytest.raises(Refusal, match="'small' does not take") as caught:
        messages(chain, media=Media("small", images=False, files=False))
    assert caught.value.failure.code == "invalid_value"


@pytest.mark.parametrize(
    "part", [{"type": "input_image", "file_id": "file_1"}, {"type": "input_file", "file_url": "https://x/y.pdf"}]
)
def test_what_only_the_official_service_could_fetch_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        messages(grown(EMPTY, {"role": "user", "content": [part]}), media=Media("m", images=True, files=True))


def test_images_of_tool_outputs_follow_all_outputs_as_the_users() -> None:
    picture = {"type": "input_image", "image_url": PNG}
    chain = grown(EMPTY, call("c1"), call("c2"), output("c1", [picture]))
    chain = grown(chain, output("c2", [{"type": "input_text", "text": "ok"}, picture]))
    sent = messages(chain)
    assert sent == messages(grown(chain, user("And?")))[:-1]
    assert sent[1:] == [
        tool("c1", "The output is shown below."),
        tool("c2", "ok"),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}] * 2},
    ]


def test_several_texts_are_one_where_the_upstream_takes_only_text() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    chain = grown(EMPTY, {"role": "user", "content": parts})
    assert messages(chain) == [user("a\nb")]
    assert messages(chain, flat_text=False)[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


def test_neighbours_of_one_role_are_merged_where_templates_are_strict() -> None:
    chain = grown(grown(EMPTY, user("a"), user("b")), user("c"), assistant("x"), assistant("y"), user("d"))
    assert messages(chain, merged_roles=True) == [
        user("a\nb\nc"),
        {"role": "assistant", "content": "x\n\ny"},
        user("d"),
    ]
    assert len(messages(chain)) == 6


def test_leading_system_messages_are_kept_for_the_instructions() -> None:
    chain = grown(EMPTY, {"role": "system", "content": "Be good."}, {"role": "developer", "content": "Be brief."})
    chain = grown(chain, user("Hi"), {"role": "developer", "content": "Be quick."})
    history = render(chain, plain_style())
    assert history.lead == ("Be good.", "Be brief.")
    assert messages(chain) == [user("Hi"), {"role": "system", "content": "Be quick."}]


def test_developers_are_developers_where_the_upstream_knows_them() -> None:
    chain = grown(EMPTY, {"role": "system", "content": "a"}, {"role": "developer", "content": "b"})
    found = messages(chain, developer_role=True, joined_lead=False)
    assert [each["role"] for each in found] == ["system", "developer"]


def test_late_system_messages_can_be_the_users() -> None:
    chain = grown(EMPTY, user("Hi"), {"role": "system", "content": "Hurry."})
    assert messages(chain, late_system_as_user=True) == [user("Hi"), user("Hurry.")]


def test_items_without_a_word_in_the_chat_api_are_left_out_and_counted() -> None:
    chain = grown(
        EMPTY,
        user("Hi"),
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1"},
        {"type": "computer_call", "id": "cu_1", "call_id": "c1", "status": "completed"},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "x", "tools": []},
    )
    tally = Encoded()
    history = render(chain, plain_style(), tally)
    assert len(history.joined()) == 1
    assert tally.items == 1
    assert tally.skipped == {"code_interpreter_call": 1, "computer_call": 1}


def test_each_item_is_encoded_once_over_200_turns() -> None:
    style = plain_style(reasoning_field="reasoning")
    chain, tally = EMPTY, Encoded()
    per_turn: list[int] = []
    for turn in range(200):
        before = tally.items
        chain = grown(chain, user(f"question {turn}"))
        render(chain, style, tally)
        chain = grown(chain, reasoning("hm"), call(f"c{turn}"), origin=Origin.MODEL)
        chain = grown(chain, output(f"c{turn}", "result"))
        render(chain, style, tally)
        chain = grown(chain, assistant("answer"), origin=Origin.MODEL)
        per_turn.append(tally.items - before)
    render(chain, style, tally)
    assert tally.items == chain.length == 1000
    assert set(per_turn[1:]) == {5}
    assert len(messages(chain, style)) == 800


def test_forks_share_what_they_have_in_common() -> None:
    style, tally = plain_style(), Encoded()
    trunk = grown(EMPTY, *(user(str(number)) for number in range(50)))
    render(trunk, style, tally)
    left, right = grown(trunk, user("left")), grown(trunk, user("right"))
    render(left, style, tally)
    render(right, style, tally)
    assert tally.items == 52
    assert messages(left, style)[-1] == user("left")
    assert messages(right, style)[-1] == user("right")


def test_another_style_or_renderer_in_the_memo_is_not_used() -> None:
    chain = grown(EMPTY, reasoning("hm"), assistant("Ho"))
    messages(chain, reasoning_field=None)
    assert "reasoning" in messages(chain, reasoning_field="reasoning")[0]
    chain.rendering = object()
    assert messages(chain) == [{"role": "assistant", "content": "Ho"}]


def test_an_item_that_stands_for_another_says_nothing() -> None:
    assert messages(grown(EMPTY, item(type="item_reference", id="msg_1"), user("Hi"))) == [user("Hi")]
