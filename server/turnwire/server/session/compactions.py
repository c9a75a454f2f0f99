"""Compaction in the middle of a response: the conversation goes on in a shorter form, and the client is told.

Above it: passes, which ask before each pass whether it is due. Below it: the transcript. It counts as hosted work
before a pass; a response that ends meanwhile hears no more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnwire.server.session.calls import NO_CALLS
from turnwire.server.session.context import Context
from turnwire.server.session.effects import Compact, Compacted
from turnwire.server.session.run import Run
from turnwire.server.session.transcript import Entry, Origin, Transcript
from turnwire.v1.item_pb2 import Compaction, Item
from turnwire.v1.server_event_pb2 import ItemProgress, ServerEvent

COMPACTION_ID: Final = "cmp_"
"""Prefix of the ids of compaction items."""

BUDGET: Final = 4_096
"""Most tokens of a digest. Less where a threshold is low: a quarter of it, so that there is room for what follows."""


class Compactions:
    """Compacts the conversations of a session's responses."""

    __slots__ = ("_context", "on_finished")

    def __init__(self, context: Context) -> None:
        """Takes what the session shares."""
        self._context = context
        self.on_finished: Callable[[Run], None] = lambda run: None
        """Hears of a response that can go on to what follows."""

    def due(self, run: Run) -> bool:
        """Whether a conversation is to be compacted before its next pass."""
        if run.compact_now:
            return True
        # What could not be made shorter is not tried again before something was said.
        if run.compact_threshold is None or run.transcript is run.compacted:
            return False
        return run.transcript.tokens + run.beside >= run.compact_threshold

    def begin(self, run: Run) -> None:
        """Asks for a compaction; the response is in phase TOOLS."""
        run.compact_now = False
        run.compacting = True
        config = self._context.config
        budget = BUDGET if run.compact_threshold is None else min(BUDGET, run.compact_threshold // 4)
        self._context.effects.append(Compact(run.pass_id, run.transcript, config.principal, budget, config.visits))

    def finished(self, pass_id: int, made: Compacted | None) -> None:
        """Takes what a conversation was compacted to, None where it could not be; of a dead pass it is dropped."""
        run = self._context.by_pass.get(pass_id)
        if run is None or not run.compacting:
            return
        run.compacting = False
        del self._context.by_pass[pass_id]
        if made is not None:
            self._tell(run, made)
            self._go_on_from(run, made)
        run.compacted = run.transcript
        self.on_finished(run)

    def _tell(self, run: Run, made: Compacted) -> None:
        assembler = run.assembler
        assert assembler is not None
        item_id = self._context.new_id(COMPACTION_ID)
        item = Item(compaction=Compaction(id=item_id, encrypted_content=made.sealed))
        assembler.announce(Item(compaction=Compaction(id=item_id)))
        progress = ItemProgress(output_index=assembler.output_index)
        assembler.emit_progress(ServerEvent(compaction_compacting=progress))
        assembler.deliver(item, made.tokens)

    def _go_on_from(self, run: Run, made: Compacted) -> None:
        """Puts the window in the place of the conversation."""
        # Filed by the assembler like any item; prompts read the digest in its place.
        told = run.pass_entries.pop()
        entry = Entry(told.data, Origin.HOSTED, made.tokens, made.digest, made.mark)
        run.output[-1] = entry
        whole = run.transcript.extend((entry,), made.open_calls)
        run.transcript = Transcript(
            None,
            (*made.kept, entry, *made.newest),
            made.open_calls,
            whole.turns,
            chain=whole.chain,
            instead=whole,
            truncated=whole.truncated,
        )
        run.put_beside()
        run.before = run.transcript
        run.earlier = run.earlier.extend(run.output[run.earlier.length :], NO_CALLS)
        run.context_tokens = 0
