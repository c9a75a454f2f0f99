"""Pages of input items: every item has an id, and pages meet without a gap."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.runtime.input_items import list_page
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import (
    FunctionCallOutput,
    Item,
    Message,
    MessageContent,
    Role,
    ToolOutput,
)
from turnwire.v1.opaque_pb2 import OpaqueObject
from turnwire.v1.responses_service_pb2 import ListInputItemsRequest, ListInputItemsResponse


def _items(count: int) -> list[Item]:
    return [Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=str(n)))) for n in range(count)]


def _page(items: list[Item], response_id: str = "resp_1", **request: object) -> ListInputItemsResponse:
    copies = [Item.FromString(item.SerializeToString()) for item in items]
    return list_page(response_id, copies, ListInputItemsRequest(response_id=response_id, **request))  # type: ignore[arg-type]


def _texts(page: ListInputItemsResponse) -> list[str]:
    return [item.message.content.parts.parts[0].input_text.text for item in page.items]


def test_the_newest_twenty_come_first() -> None:
    page = _page(_items(25))
    assert _texts(page) == [str(n) for n in range(24, 4, -1)]
    assert page.has_more
    rest = _page(_items(25), after=page.items[-1].message.id)
    assert _texts(rest) == ["4", "3", "2", "1", "0"]
    assert not rest.has_more


@given(st.integers(0, 30), st.integers(1, 100), st.booleans())
def test_pages_together_are_the_whole_list(count: int, limit: int, ascending: bool) -> None:
    seen: list[str] = []
    after = ""
    while True:
        page = _page(_items(count), limit=limit, ascending=ascending, after=after)
        seen += _texts(page)
        if not page.has_more:
            break
        after = page.items[-1].message.id
    wanted = [str(n) for n in range(count)]
    assert seen == (wanted if ascending else wanted[::-1])


@pytest.mark.parametrize("ascending", [False, True])
def test_a_page_that_ends_with_the_list_says_that_nothing_is_behind_it(ascending: bool) -> None:
    first = _page(_items(4), limit=2, ascending=ascending)
    assert (len(first.items), first.has_more) == (2, True)
    last = _page(_items(4), limit=2, ascending=ascending, after=first.items[-1].message.id)
    assert (len(last.items), last.has_more) == (2, False)


def test_items_without_an_id_get_one_that_stays_and_is_theirs_alone() -> None:
    items = [
        *_items(2),
        Item(function_call_output=FunctionCallOutput(call_id="c", output=ToolOutput(text="x"))),
        Item(message=Message(id="msg_mine", role=Role.ROLE_USER)),
    ]
    listed = _page(items, ascending=True).items
    again = _page(items, ascending=True).items
    assert list(listed) == list(again)
    ids = [listed[0].message.id, listed[1].message.id, listed[2].function_call_output.id, listed[3].message.id]
    assert len(set(ids)) == 4
    assert ids[0].startswith("msg_")
    assert ids[2].startswith("fco_")
    assert ids[3] == "msg_mine"
    assert _page(items, "resp_2", ascending=True).items[0].message.id != ids[0]


def test_items_of_unknown_types_are_listed_as_they_came_with_an_id() -> None:
    items = [
        Item(opaque=OpaqueObject(type="acme:note", json='{"type": "acme:note", "x": 1.0}')),
        Item(opaque=OpaqueObject(type="acme:note", json='{"type":"acme:note","id":"note_1"}')),
    ]
    first, second = _page(items, ascending=True).items
    assert first.opaque.json.endswith('"type": "acme:note", "x": 1.0}')
    given_id = msgspec.json.decode(first.opaque.json)["id"]
    assert given_id.startswith("item_")
    assert second.opaque.json == items[1].opaque.json
    assert list(_page(items, ascending=True, after=given_id).items) == [second]
    assert not _page(items, ascending=True, after="note_1").items


def test_messages_are_listed_in_parts_by_who_said_them() -> None:
    said = Item(message=Message(role=Role.ROLE_ASSISTANT, content=MessageContent(text="hi")))
    (item,) = _page([said]).items
    assert item.message.content.parts.parts[0].output_text.text == "hi"


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(RequestError) as refused:
        _page(_items(1), limit=limit)
    assert (refused.value.error.code, refused.value.error.param) == ("invalid_value", "limit")


def test_an_unknown_place_to_start_is_refused_in_the_public_words() -> None:
    with pytest.raises(RequestError) as refused:
        _page(_items(1), after="msg_x")
    error = refused.value.error
    assert (error.code, error.param, error.message) == ("item_not_found", "after", "No item found with id 'msg_x'.")
