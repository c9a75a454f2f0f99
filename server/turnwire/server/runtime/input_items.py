"""Pages of a response's input items, as the public API lists them: each with an id, messages in parts.

Above it: `local`. Below it: the messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from turnwire.v1 import ids
from turnwire.v1.errors import reject
from turnwire.v1.item_pb2 import ContentPart, ContentParts, InputText, Item, OutputText, Role
from turnwire.v1.json.refusal import shown
from turnwire.v1.responses_service_pb2 import ListInputItemsRequest, ListInputItemsResponse

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100
"""Items of a page."""

_PREFIXES: Final = {
    "message": ids.MESSAGE,
    "reasoning": ids.REASONING,
    "function_call": ids.FUNCTION_CALL,
    "function_call_output": "fco_",
    "custom_tool_call": ids.CUSTOM_CALL,
    "custom_tool_call_output": "ctco_",
    "local_shell_call": "lsh_",
    "local_shell_call_output": "lsho_",
    "shell_call": "sh_",
    "shell_call_output": "sho_",
    "apply_patch_call": "apc_",
    "apply_patch_call_output": "apco_",
    "tool_search_call": "tsc_",
    "tool_search_output": "tso_",
    "compaction": "cmp_",
    "mcp_call": ids.HOSTED_CALL,
    "mcp_list_tools": "mcpl_",
    "mcp_approval_request": "mcpr_",
    "mcp_approval_response": "mcpa_",
    "web_search_call": "ws_",
    "computer_call": "cu_",
    "computer_call_output": "cuo_",
}


def list_page(response_id: str, items: Sequence[Item], request: ListInputItemsRequest) -> ListInputItemsResponse:
    """Returns a page of a response's input items. Changes the items: those without an id get one.

    Args:
        response_id: The response; ids that items lack are derived from it.
        items: All of them, oldest first.
        request: Which page.

    Raises:
        RequestError: `invalid_value` for the limit, `item_not_found` for an unknown `after`.
    """
    limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
    if not 1 <= limit <= MAX_LIMIT:
        message = f"Invalid value for 'limit': {limit} is not within 1 and {MAX_LIMIT}."
        raise reject("invalid_value", message, param="limit", value=str(limit))
    names = [_named(item, response_id, position) for position, item in enumerate(items)]
    order = range(len(items)) if request.ascending else range(len(items) - 1, -1, -1)
    start = 0
    if request.after:
        try:
            start = 1 + next(n for n, position in enumerate(order) if names[position] == request.after)
        except StopIteration:
            name = shown(request.after)
            raise reject("item_not_found", f"No item found with id '{name}'.", param="after", id=name) from None
    page = [items[position] for position in order[start : start + limit]]
    for item in page:
        _in_parts(item)
    return ListInputItemsResponse(items=page, has_more=start + limit < len(items))


def _named(item: Item, response_id: str, position: int) -> str:
    """Returns an item's id, after giving it one that stays the same if it came without."""
    kind = item.WhichOneof("kind") or ""
    digest = hashlib.blake2b(f"{response_id}/{position}".encode(), digest_size=16).hexdigest()
    derived = f"{_PREFIXES.get(kind, 'item_')}{digest}"
    if kind == "opaque":
        return _opaque_named(item, derived)
    inner = getattr(item, kind) if kind else None
    if inner is None or "id" not in inner.DESCRIPTOR.fields_by_name:
        return derived
    if not inner.id:
        inner.id = derived
    return str(inner.id)


def _opaque_named(item: Item, derived: str) -> str:
    text = item.opaque.json
    known = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    if "id" in known:
        given = msgspec.json.decode(known["id"])
        if isinstance(given, str) and given:
            return given
    # In front of what came, which stays byte for byte; it holds a type at least.
    item.opaque.json = f'{{"id":"{derived}",{text.lstrip().removeprefix("{")}' if "id" not in known else text
    return derived


def _in_parts(item: Item) -> None:
    """Writes a message whose content is plain text as one part, as messages are listed."""
    if item.WhichOneof("kind") != "message" or item.message.content.WhichOneof("form") != "text":
        return
    text = item.message.content.text
    if item.message.role == Role.ROLE_ASSISTANT:
        part = ContentPart(output_text=OutputText(text=text))
    else:
        part = ContentPart(input_text=InputText(text=text))
    item.message.content.parts.CopyFrom(ContentParts(parts=[part]))
