"""Files what a run's assembler finishes.

Above it: passes. Below it: runs, and the hosted work that begins with a call.
"""

from __future__ import annotations

from typing import Final

from turnwire.server.session.calls import opened_by
from turnwire.server.session.context import Context
from turnwire.server.session.hosting import Hosting
from turnwire.server.session.marks import UNKNOWN
from turnwire.server.session.run import Run
from turnwire.server.session.settings import seals_reasoning
from turnwire.server.session.transcript import Entry, Origin
from turnwire.v1 import ids
from turnwire.v1.item_pb2 import Item, Reasoning

_ID_PREFIXES: Final = {
    "message": ids.MESSAGE,
    "reasoning": ids.REASONING,
    "function": ids.FUNCTION_CALL,
    "custom": ids.CUSTOM_CALL,
}
_HOSTED: Final = frozenset({"mcp_call", "mcp_list_tools", "web_search_call"})


class RunListener:
    """Files what a run's assembler finishes."""

    __slots__ = ("_context", "_hosting", "_run")

    def __init__(self, context: Context, hosting: Hosting, run: Run) -> None:
        """Takes what the session shares, who runs hosted tools, and the run."""
        self._context = context
        self._hosting = hosting
        self._run = run

    def new_item_id(self, kind: str) -> str:
        """Returns a fresh id for an item of a kind."""
        return self._context.new_id(_ID_PREFIXES[kind])

    def new_call_id(self, wished: str) -> str:
        """Returns the id of a call: the engine's own, where it is one that no open call has."""
        run = self._run
        taken = {key.id for key in run.transcript.open_calls}
        taken.update(key.id for key in run.pass_calls)
        taken.update(run.hosted)
        if 0 < len(wished) <= 64 and wished not in taken:
            return wished
        return self._context.new_id(ids.CALL)

    def seal(self, reasoning: Reasoning) -> str | None:
        """Seals reasoning for its principal; None where nobody asks for it."""
        config = self._context.config
        # A summary alone can be replayed as it is.
        if config.seal is None or not reasoning.content or not seals_reasoning(self._run.settings):
            return None
        # Only what a replay cannot do without: the rest stands beside it in the open.
        return config.seal(config.principal, Reasoning(content=reasoning.content).SerializeToString())

    def item_done(self, item: Item, data: bytes, tokens: int) -> None:
        """Files an item."""
        run = self._run
        origin = Origin.HOSTED if item.WhichOneof("kind") in _HOSTED else Origin.MODEL
        known = self._context.config.conversations
        entry = Entry(data, origin, tokens, mark=UNKNOWN if known is None else known.marker.mark(item))
        run.pass_entries.append(entry)
        run.output.append(entry)
        call = opened_by(item)
        if call is not None:
            run.pass_calls.append(call)

    def hosted_call(self, call_id: str, name: str, arguments: str, tokens: int) -> None:
        """Begins a hosted call."""
        self._hosting.call(self._run, call_id, name, arguments, tokens)

    def is_hosted(self, name: str) -> bool:
        """Whether the server runs a function."""
        return name in self._run.offered.hosted

    def split(self, name: str) -> tuple[str, str]:
        """Returns the namespace and the name of a tool as it was declared."""
        return self._run.tools.split(name)
