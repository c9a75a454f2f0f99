"""The ledger over a journal: one append before `done` leaves, everything else afterwards.

Above it: the runtime, through the port, and the durable store, which records deletions. Below it: the journal, its
consumer, and budgets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from turnwire.server.engine.profile import Price
from turnwire.server.ledger.budgets import Budgets
from turnwire.server.ledger.config import DataConfig
from turnwire.server.ledger.consumer import Consumer
from turnwire.server.session.accounts import Spending
from turnwire.server.session.state import State
from turnwire.server.store.journal import Journal, JournalError
from turnwire.server.store.records import Deleted, Kept, Probed, Record, SpentRecord, encode
from turnwire.server.store.writing import StateWriter
from turnwire.v1.errors import reject

_log: Final = logging.getLogger(__name__)

PriceOf = Callable[[str], Price | None]
"""Says the price of a resolved model."""


class Watch(Protocol):
    """Hears of the journal, for metrics."""

    def appended(self, size: int, seconds: float) -> None:
        """A record of so many bytes was written in so many seconds."""

    def not_appended(self) -> None:
        """A record could not be written."""


class Unwatched:
    """Hears and keeps nothing."""

    def appended(self, size: int, seconds: float) -> None:
        """Ignores it."""

    def not_appended(self) -> None:
        """Ignores it."""


class BudgetLedger:
    """The ledger of a server that keeps nothing: budgets alone, from the start of the process."""

    def __init__(self, budgets: Budgets, price: PriceOf) -> None:
        """Takes the budgets, and the prices."""
        self._budgets = budgets
        self._price = price

    def admit(self, principal: str) -> None:
        """Checks the budget; see `Ledger`."""
        self._budgets.check(principal)

    def keep(self, door: str, spent: Spending, state: State | None) -> bool:
        """Adds what a response cost; see `Ledger`."""
        price = self._price(spent.model)
        cost = _cost(spent, price) or 0.0
        tokens = spent.input_tokens + spent.output_tokens
        self._budgets.spend(spent.principal, tokens, cost, price.currency if price else "")
        return True

    def save(self, state: State) -> None:
        """Ignores it; see `Ledger`."""


class Recorder(BudgetLedger):
    """The ledger over a journal. On the event loop's thread."""

    def __init__(
        self,
        config: DataConfig,
        journal: Journal,
        writer: StateWriter,
        consumer: Consumer,
        budgets: Budgets,
        price: PriceOf,
        watch: Watch | None = None,
    ) -> None:
        """Takes the settings, and where records go."""
        super().__init__(budgets, price)
        self._config = config
        self._journal = journal
        self._writer = writer
        self._consumer = consumer
        self._watch = watch or Unwatched()
        self._broken = False
        """Whether the last record could not be written."""

    def admit(self, principal: str) -> None:
        """Checks the budget, and that what the response will cost could be recorded; see `Ledger`."""
        super().admit(principal)
        if self._broken and self._config.fail_closed and not self._append(Probed(time.time())):
            message = "The server cannot record responses at the moment. Try again later."
            raise reject("server_error", message)
        if self._consumer.lag_bytes > self._config.max_lag_bytes:
            message = "The server cannot keep up with recording responses. Try again later."
            raise reject("server_is_overloaded", message)

    def keep(self, door: str, spent: Spending, state: State | None) -> bool:
        """Records what a response cost and stands for; see `Ledger`."""
        kept = self._record(_line(door, spent, self._price(spent.model)), state) or not self._config.fail_closed
        # What was not recorded is told again, as what it failed by.
        return kept and super().keep(door, spent, state)

    def save(self, state: State) -> None:
        """Records what a response stands for; see `Ledger`."""
        self._record(None, state)

    def deleted(self, principal: str, response_id: str) -> None:
        """Records that a response was deleted.

        Raises:
            RequestError: `server_error`: it cannot be recorded, so that the response would come back.
        """
        if not self._append(Deleted(principal, response_id)):
            raise reject("server_error", "The server could not record the deletion. Try again later.")

    def _record(self, line: SpentRecord | None, state: State | None) -> bool:
        try:
            record = Kept(line, None if state is None else self._writer.record(state, self._journal.roll()))
        except JournalError as error:
            return self._failed(error)
        if not self._append(record):
            return False
        if state is not None:
            self._writer.done()
        return True

    def _append(self, record: Record) -> bool:
        started = time.perf_counter()
        data = encode(record)
        try:
            self._journal.append(data)
        except JournalError as error:
            return self._failed(error)
        self._watch.appended(len(data), time.perf_counter() - started)
        if self._broken:
            self._broken = False
            _log.warning("the journal can be written again")
        if self._config.overlapped:
            self._consumer.notify()
        else:
            self._consume()
        return True

    def _failed(self, error: JournalError) -> bool:
        self._broken = True
        self._watch.not_appended()
        what = "responses fail" if self._config.fail_closed else "responses are served UNRECORDED"
        _log.critical("%s; %s until it can be", error, what)
        return False

    def _consume(self) -> None:
        try:
            self._consumer.consume()
        except Exception:
            # It is in the journal, and will be tried again with the next one.
            self._consumer.failures += 1
            _log.exception("the journal cannot be consumed, and grows")


def _cost(spent: Spending, price: Price | None) -> float | None:
    return None if price is None else price.of(spent.input_tokens, spent.cached_tokens, spent.output_tokens)


def _line(door: str, spent: Spending, price: Price | None) -> SpentRecord:
    times = spent.times
    return SpentRecord(
        response_id=spent.response_id,
        passes=spent.passes,
        door=door,
        principal=spent.principal,
        model=spent.model,
        created_at=spent.created_at,
        ended_at=spent.ended_at,
        outcome=spent.outcome,
        code=spent.code,
        input_tokens=spent.input_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        reasoning_tokens=spent.reasoning_tokens,
        estimated=spent.estimated,
        price=_cost(spent, price),
        currency="" if price is None else price.currency,
        end_user=spent.end_user,
        labels=dict(spent.labels),
        metadata=dict(spent.metadata),
        times=(
            times.queued,
            times.pre_inference,
            times.first_token if times.HasField("first_token") else None,
            times.inference,
            times.hosted_tools,
            times.client_wait,
            times.post_inference,
            times.stalled,
        ),
    )
