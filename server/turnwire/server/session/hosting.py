"""Hosted work of a response: calls that the server runs, calls that wait for approval, and listings of MCP servers.

Each becomes one item that holds the call and its outcome, reported in the order of the calls, each finished before the
next is announced. Above: the passes, which say when. Below: the assembler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from turnwire.server.session.assembler import Assembler
from turnwire.server.session.context import Context
from turnwire.server.session.effects import CancelTools, ListTools, RunTool, ToolResult
from turnwire.server.session.hosted import LIMIT_REACHED, Approval, Kind, Listed, Listing, Target, find_request
from turnwire.server.session.offers import as_object, decoded
from turnwire.server.session.run import HostedCall, Job, Run
from turnwire.server.session.states import Phase
from turnwire.v1 import ids
from turnwire.v1.item_pb2 import Item, ItemStatus, McpApprovalRequest, McpCall, McpListTools, WebSearchCall
from turnwire.v1.server_event_pb2 import ItemProgress, McpCallArgumentsDelta, McpCallArgumentsDone, ServerEvent

_LISTING_ID: Final = "mcpl_"
_APPROVAL_ID: Final = "mcpr_"
_SEARCH_ID: Final = "ws_"

_IN_PROGRESS: Final = ItemStatus.ITEM_STATUS_IN_PROGRESS
_COMPLETED: Final = ItemStatus.ITEM_STATUS_COMPLETED
_FAILED: Final = ItemStatus.ITEM_STATUS_FAILED


class Hosting:
    """Runs hosted work and reports it."""

    __slots__ = ("_context", "on_finished")

    def __init__(self, context: Context) -> None:
        """Takes what the session shares."""
        self._context = context
        self.on_finished: Callable[[Run], None] = lambda run: None
        """Hears that all hosted work of a response in phase TOOLS was reported."""

    def call(self, run: Run, call_id: str, name: str, arguments: str, tokens: int) -> None:
        """Takes a call that the model has finished: runs it, or asks the user when its turn comes."""
        target = run.offered.target(name)
        if target.asks:
            item_id = self._context.new_id(_APPROVAL_ID)
            run.hosted[call_id] = HostedCall(call_id, item_id, Job.ASK, target, arguments, tokens)
            return
        item_id = self._context.new_id(_SEARCH_ID if target.kind is Kind.SEARCH else ids.HOSTED_CALL)
        self._run(run, HostedCall(call_id, item_id, Job.RUN, target, arguments, tokens), name)

    def _run(self, run: Run, call: HostedCall, name: str) -> None:
        run.hosted[call.call_id] = call
        run.hosted_count += 1
        if run.settings.HasField("max_tool_calls") and run.hosted_count > run.settings.max_tool_calls:
            call.result = ToolResult(LIMIT_REACHED.format(run.settings.max_tool_calls), failed=True)
            return
        self._context.effects.append(RunTool(run.pass_id, call.call_id, name, call.arguments, run.tools, call.target))

    def begin_prelude(self, run: Run) -> None:
        """Begins what comes before a pass of a response in phase TOOLS: listings, and calls that were answered."""
        run.prelude = True
        for label in run.unlisted:
            item_id = self._context.new_id(_LISTING_ID)
            run.hosted[item_id] = HostedCall(item_id, item_id, Job.LIST, Target(Kind.MCP, label, ""))
            self._context.effects.append(ListTools(run.pass_id, item_id, label, run.tools))
        answers, run.approvals = run.approvals, ()
        for answer in answers:
            self._act_upon(run, answer)
        self.flush(run)

    def _act_upon(self, run: Run, answer: Approval) -> None:
        request = find_request(run.transcript, answer.request_id)
        if request is None:
            return
        item_id = self._context.new_id(ids.HOSTED_CALL)
        target = Target(Kind.MCP, request.server_label, request.name)
        call = HostedCall(item_id, item_id, Job.RUN, target, request.arguments, approval_request_id=answer.request_id)
        if not answer.approve:
            reason = f" They said: {answer.reason}" if answer.reason else ""
            call.result = ToolResult(f"The user did not approve this call.{reason}", failed=True)
        elif request.server_label not in run.tools.servers:
            message = f"The server '{request.server_label}' is not among the tools any more."
            call.result = ToolResult(message, failed=True)
        else:
            self._run(run, call, request.name)
            return
        run.hosted[item_id] = call

    def finished(self, pass_id: int, call_id: str, result: ToolResult | Listed) -> None:
        """Takes an outcome; of a dead pass it is dropped."""
        run = self._context.by_pass.get(pass_id)
        if run is None:
            return
        call = run.hosted.get(call_id)
        if call is None or call.result is not None:
            return
        call.result = result
        if run.phase is Phase.TOOLS:
            self.flush(run)

    def flush(self, run: Run) -> None:
        """Reports hosted work in order, as far as it has finished."""
        assembler = run.assembler
        assert assembler is not None
        for call in list(run.hosted.values()):
            if not call.announced:
                call.announced = True
                _announce(assembler, call)
            if call.job is Job.ASK:
                assembler.deliver(_request(call), call.tokens)
            elif call.result is None:
                return
            elif isinstance(call.result, Listed):
                self._list(run, assembler, call, call.result)
            else:
                _conclude(assembler, call, call.result)
            del run.hosted[call.call_id]
        self.on_finished(run)

    def _list(self, run: Run, assembler: Assembler, call: HostedCall, listed: Listed) -> None:
        label = call.target.label
        item = Item(mcp_list_tools=McpListTools(id=call.item_id, server_label=label, tools=listed.tools))
        progress = ItemProgress(output_index=assembler.output_index)
        if listed.error:
            item.mcp_list_tools.error = listed.error
            assembler.emit_progress(ServerEvent(mcp_list_tools_failed=progress))
        else:
            assembler.emit_progress(ServerEvent(mcp_list_tools_completed=progress))
            run.listings = {**run.listings, label: Listing(label, item.SerializeToString())}
        # The tools are part of the prompt's prefix and not of the conversation.
        assembler.deliver(item, 0)

    def drop(self, run: Run) -> None:
        """Stops hosted work that nobody waits for any more."""
        if any(call.result is None and call.job is not Job.ASK for call in run.hosted.values()):
            self._context.effects.append(CancelTools(run.pass_id))
        run.hosted.clear()
        run.prelude = False


def _announce(assembler: Assembler, call: HostedCall) -> None:
    index = assembler.output_index
    progress = ItemProgress(output_index=index)
    if call.job is Job.ASK:
        assembler.announce(_request(call))
    elif call.job is Job.LIST:
        assembler.announce(Item(mcp_list_tools=McpListTools(id=call.item_id, server_label=call.target.label)))
        assembler.emit_progress(ServerEvent(mcp_list_tools_in_progress=progress))
    elif call.target.kind is Kind.SEARCH:
        assembler.announce(_search_item(call, None, _IN_PROGRESS))
        assembler.emit_progress(ServerEvent(web_search_call_in_progress=progress))
        assembler.emit_progress(ServerEvent(web_search_call_searching=progress))
    else:
        assembler.announce(_call_item(call, None, _IN_PROGRESS))
        delta = McpCallArgumentsDelta(output_index=index, delta=call.arguments)
        assembler.emit_full(ServerEvent(mcp_call_arguments_delta=delta))
        done = McpCallArgumentsDone(output_index=index, arguments=call.arguments)
        assembler.emit_full(ServerEvent(mcp_call_arguments_done=done))
        assembler.emit_progress(ServerEvent(mcp_call_in_progress=progress))


def _conclude(assembler: Assembler, call: HostedCall, result: ToolResult) -> None:
    progress = ItemProgress(output_index=assembler.output_index)
    status = _FAILED if result.failed else _COMPLETED
    tokens = call.tokens + result.tokens
    if call.target.kind is Kind.SEARCH:
        # A search that failed has no event of its own in the public API; its item says so.
        if not result.failed:
            assembler.emit_progress(ServerEvent(web_search_call_completed=progress))
        assembler.deliver(_search_item(call, result, status), tokens)
        return
    if result.failed:
        assembler.emit_progress(ServerEvent(mcp_call_failed=progress))
    else:
        assembler.emit_progress(ServerEvent(mcp_call_completed=progress))
    assembler.deliver(_call_item(call, result, status), tokens)


def _request(call: HostedCall) -> Item:
    return Item(
        mcp_approval_request=McpApprovalRequest(
            id=call.item_id, server_label=call.target.label, name=call.target.name, arguments=call.arguments
        )
    )


def _call_item(call: HostedCall, result: ToolResult | None, status: ItemStatus.ValueType) -> Item:
    return Item(
        mcp_call=McpCall(
            id=call.item_id,
            server_label=call.target.label,
            name=call.target.name,
            arguments=call.arguments if result else "",
            output=result.output if result and not result.failed else None,
            error=result.output if result and result.failed else None,
            status=status,
            approval_request_id=call.approval_request_id or None,
        )
    )


def _search_item(call: HostedCall, result: ToolResult | None, status: ItemStatus.ValueType) -> Item:
    query = (as_object(decoded(call.arguments)) or {}).get("query")
    action = {"type": "search", "query": query if isinstance(query, str) else ""}
    search = WebSearchCall(id=call.item_id, status=status, action=msgspec.json.encode(action).decode())
    # What was found stays in the item, so that a client that keeps its own history can replay it.
    if result is not None and result.failed:
        search.extra_json = msgspec.json.encode({"error": result.output}).decode()
    elif result is not None:
        search.extra_json = f'{{"results":{result.results or "[]"}}}'
    return Item(web_search_call=search)
