"""Checks of items: each kind's required keys, lengths and vocabularies, and what may be appended.

Above: `prepare`. Below: content checks and refusals. Pairing of calls and outputs is the session core's business. Ids
may be of the client's own making; of the kinds that the public API is strict about, they must begin as its own do. A
call's arguments are text and may be anything, since a client must be able to replay what a model wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnwire.server.policy import json_text
from turnwire.server.policy.content_checks import (
    INPUT_PARTS,
    OUTPUT_PARTS,
    REASONING_PARTS,
    SUMMARY_PARTS,
    check_content,
    check_length,
    check_parts,
)
from turnwire.server.policy.refusals import (
    invalid,
    missing,
    not_among,
    not_object,
    shown,
    too_long,
    too_many,
)
from turnwire.server.policy.wellformed import check_wellformed
from turnwire.server.session.calls import answered_by
from turnwire.v1.errors import reject
from turnwire.v1.item_pb2 import (
    ApplyPatchCallOutput,
    Compaction,
    CustomToolCallOutput,
    FunctionCallOutput,
    Item,
    ItemStatus,
    LocalShellCall,
    LocalShellCallOutput,
    Message,
    Reasoning,
    Role,
    ToolSearchCall,
    ToolSearchOutput,
)

_MAX_ID: Final = 64
_MAX_NAME: Final = 128
_MAX_SEALED: Final = 20_971_520
_EXECUTIONS: Final = ("server", "client")
_OUTCOMES: Final = ("completed", "failed")
_APPENDABLE_ROLES: Final = (Role.ROLE_USER, Role.ROLE_DEVELOPER)


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one kind of item must have."""

    required: tuple[str, ...] = ()
    """Keys that may not be empty."""
    limits: tuple[tuple[str, int], ...] = (("id", _MAX_ID),)
    """Most characters by key."""
    prefix: str = ""
    """How an id begins that is given at all; empty means in any way."""
    objects: tuple[str, ...] = ()
    """Keys whose JSON text, or each of their texts, must be an object."""
    check: Callable[[Any, str], None] | None = None
    """What else there is to check."""


def check_items(items: Sequence[Item], max_items: int) -> None:
    """Checks the items of a request.

    Raises:
        turnwire.v1.errors.RequestError: There are too many, or one cannot be taken, with its path as `param`.
    """
    if len(items) > max_items:
        raise too_many("input", max_items, len(items))
    for index, item in enumerate(items):
        _check_item(item, index)


def check_appended(items: Sequence[Item], max_items: int) -> None:
    """Checks the items of an append: outputs of tools, and what users and developers say.

    Raises:
        turnwire.v1.errors.RequestError: There are none or too many, or one cannot be taken or appended.
    """
    if not items:
        raise missing("input")
    check_items(items, max_items)
    for index, item in enumerate(items):
        if answered_by(item) is None and item.message.role not in _APPENDABLE_ROLES:
            raise invalid(f"input[{index}]", "only tool outputs and messages of users and developers can be appended")


def _check_item(item: Item, index: int) -> None:
    kind = item.WhichOneof("kind")
    path = f"input[{index}]"
    if kind is None:
        raise missing(f"{path}.type")
    check_wellformed(item, "input", index)
    rule = _RULES.get(kind)
    if rule is None:
        return
    member = getattr(item, kind)
    for key in rule.required:
        if not getattr(member, key):
            raise missing(f"{path}.{key}")
    for key, limit in rule.limits:
        if len(value := getattr(member, key)) > limit:
            raise too_long(f"{path}.{key}", limit, len(value))
    if rule.prefix and member.id and not member.id.startswith(rule.prefix):
        message = f"Invalid '{path}.id': '{shown(member.id)}'. Expected an ID that begins with '{rule.prefix}'."
        raise reject("invalid_value", message, param=f"{path}.id", value=shown(member.id), prefix=rule.prefix)
    for key in rule.objects:
        _check_objects(getattr(member, key), f"{path}.{key}")
    if rule.check is not None:
        rule.check(member, path)


def _check_objects(value: str | Sequence[str], path: str) -> None:
    if isinstance(value, str):
        if value and json_text.members(value) is None:
            raise not_object(path)
        return
    for index, text in enumerate(value):
        if json_text.members(text) is None:
            raise not_object(f"{path}[{index}]")


def _message(message: Message, path: str) -> None:
    if message.role == Role.ROLE_UNSPECIFIED:
        raise missing(f"{path}.role")
    kinds = OUTPUT_PARTS if message.role == Role.ROLE_ASSISTANT else INPUT_PARTS
    check_content(message.content, kinds, f"{path}.content")


def _reasoning(reasoning: Reasoning, path: str) -> None:
    _check_sealed(reasoning.encrypted_content, path)
    check_parts(reasoning.summary, SUMMARY_PARTS, f"{path}.summary")
    check_parts(reasoning.content, REASONING_PARTS, f"{path}.content")


def _output(output: FunctionCallOutput | CustomToolCallOutput, path: str) -> None:
    check_content(output.output, INPUT_PARTS, f"{path}.output")


def _local_shell_call(call: LocalShellCall, path: str) -> None:
    if not (call.call_id or call.id):
        raise missing(f"{path}.call_id")


def _local_shell_output(output: LocalShellCallOutput, path: str) -> None:
    if not (output.call_id or output.id):
        raise missing(f"{path}.id")
    check_length(output.output, f"{path}.output")


def _patch_output(output: ApplyPatchCallOutput, path: str) -> None:
    if output.status == ItemStatus.ITEM_STATUS_UNSPECIFIED:
        raise missing(f"{path}.status")
    if output.status not in (ItemStatus.ITEM_STATUS_COMPLETED, ItemStatus.ITEM_STATUS_FAILED):
        name = ItemStatus.Name(output.status).removeprefix("ITEM_STATUS_").lower()
        raise not_among(f"{path}.status", name, _OUTCOMES)
    check_length(output.output, f"{path}.output")


def _tool_search(item: ToolSearchCall | ToolSearchOutput, path: str) -> None:
    if item.HasField("execution") and item.execution not in _EXECUTIONS:
        raise not_among(f"{path}.execution", item.execution, _EXECUTIONS)
    if item.execution == "client" and not item.call_id:
        raise missing(f"{path}.call_id")


def _check_sealed(text: str, path: str) -> None:
    if len(text) > _MAX_SEALED:
        raise too_long(f"{path}.encrypted_content", _MAX_SEALED, len(text))


def _compaction(compaction: Compaction, path: str) -> None:
    _check_sealed(compaction.encrypted_content, path)


_IDS: Final = (("id", _MAX_ID), ("call_id", _MAX_ID))
_CALL: Final = (*_IDS, ("name", _MAX_NAME), ("namespace", _MAX_NAME))
_HOSTED: Final = (("id", _MAX_ID), ("name", _MAX_NAME), ("server_label", _MAX_NAME))

_RULES: Final[dict[str, _Rule]] = {
    "message": _Rule(prefix="msg", check=_message),
    "reasoning": _Rule(prefix="rs", check=_reasoning),
    "function_call": _Rule(("call_id", "name"), _CALL, "fc"),
    "function_call_output": _Rule(("call_id",), _IDS, check=_output),
    "custom_tool_call": _Rule(("call_id", "name"), _CALL, "ctc"),
    "custom_tool_call_output": _Rule(("call_id",), _IDS, check=_output),
    "local_shell_call": _Rule(("action",), _IDS, objects=("action",), check=_local_shell_call),
    "local_shell_call_output": _Rule((), _IDS, check=_local_shell_output),
    "shell_call": _Rule(("call_id", "action"), _IDS, objects=("action",)),
    "shell_call_output": _Rule(("call_id",), _IDS, objects=("output",)),
    "apply_patch_call": _Rule(("call_id", "operation"), _IDS, objects=("operation",)),
    "apply_patch_call_output": _Rule(("call_id",), _IDS, check=_patch_output),
    "tool_search_call": _Rule((), _IDS, check=_tool_search),
    "tool_search_output": _Rule((), _IDS, objects=("tools",), check=_tool_search),
    "item_reference": _Rule(("id",)),
    "compaction": _Rule(("encrypted_content",), check=_compaction),
    "compaction_trigger": _Rule((), ()),
    "mcp_call": _Rule(("server_label", "name"), _HOSTED),
    "mcp_list_tools": _Rule(("server_label",), (("id", _MAX_ID), ("server_label", _MAX_NAME)), objects=("tools",)),
    "mcp_approval_request": _Rule(("id", "server_label", "name"), _HOSTED),
    "mcp_approval_response": _Rule(("approval_request_id",), (("id", _MAX_ID), ("approval_request_id", _MAX_ID))),
    "web_search_call": _Rule(objects=("action",)),
    "computer_call": _Rule(("call_id",), _IDS),
    "computer_call_output": _Rule(("call_id",), _IDS),
}
"""Rules by kind. Opaque items have none: they are objects of the type they say, and that is all there is to know."""
