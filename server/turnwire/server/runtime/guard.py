"""How the sessions of a server are guarded: what the core is told, who is asked elsewhere, and who hears of flags.

Above it: the carrier of each session. Below it: the remote classifier's port. No text of anybody's is logged here, or
counted, or put into an error: only categories.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final, Protocol

from turnwire.server.policy.safety.remote import RemoteClassifier, RemoteFailure
from turnwire.server.policy.safety.texts import said
from turnwire.server.session.screens import Classify, Direction, Flagged, Safety, Verdict
from turnwire.server.session.transcript import Transcript

_log: Final = logging.getLogger(__name__)

_LOOKED_AT: Final = 4
"""Items before the new ones whose last words are sent with them."""
_LONGEST: Final = 64 * 1024
"""Bytes of such an item: a longer one is not parsed again for its last words."""


class SafetyObserver(Protocol):
    """Hears what classifiers do, for metrics."""

    def flagged(self, flag: Flagged) -> None:
        """Something was flagged."""

    def classified(self, seconds: float) -> None:
        """A remote classifier has answered."""

    def unclassified(self, kind: str, *, went_on: bool) -> None:
        """There was no answer."""


class Unobserved:
    """Hears everything and keeps nothing."""

    def flagged(self, flag: Flagged) -> None:
        """Ignores it."""

    def classified(self, seconds: float) -> None:
        """Ignores it."""

    def unclassified(self, kind: str, *, went_on: bool) -> None:
        """Ignores it."""


class Guard:
    """What all sessions of a server share of it."""

    def __init__(
        self,
        safety: Safety | None = None,
        remote: RemoteClassifier | None = None,
        *,
        fails_open: bool = False,
        observer: SafetyObserver | None = None,
    ) -> None:
        """Takes what the core is told, and who is asked for what it wants classified; by default nothing is guarded.

        Args:
            safety: What the core is told.
            remote: Who is asked.
            fails_open: Whether responses go on where there is no answer.
            observer: Hears what happens.
        """
        self.safety = safety
        self._remote = remote
        self._fails_open = fails_open
        self._observer = observer or Unobserved()

    async def judge(self, question: Classify) -> Verdict:
        """Has something classified. Never fails: what goes wrong is counted, and told as it is configured.

        Safe to cancel.
        """
        if self._remote is None or self.safety is None:
            return Verdict()
        texts = list(_texts(question, self.safety.overlap))
        if not texts:
            return Verdict()
        started = time.perf_counter()
        try:
            hits = await self._remote.classify(texts)
        except RemoteFailure as failure:
            _log.warning("the remote classifier did not answer: %s", failure)
            self._observer.unclassified(failure.kind, went_on=self._fails_open)
            return Verdict(failed=not self._fails_open)
        except Exception:
            _log.exception("the remote classifier failed")
            self._observer.unclassified("crash", went_on=self._fails_open)
            return Verdict(failed=not self._fails_open)
        self._observer.classified(time.perf_counter() - started)
        return Verdict(hits)

    def flagged(self, flag: Flagged) -> None:
        """Counts and logs a flag."""
        self._observer.flagged(flag)
        outcome = "stopped" if flag.stopped else "counted"
        _log.info("flagged: response %s, %s, %s, %s", flag.response_id, flag.direction.value, flag.category, outcome)

    async def aclose(self) -> None:
        """Closes the remote classifier's connections."""
        if self._remote is not None:
            await self._remote.aclose()


def _texts(question: Classify, overlap: int) -> Iterator[str]:
    """Yields what is to be classified: the words of each party together, with the last ones before them."""
    if question.text:
        yield question.text
    words: dict[bool, list[str]] = {False: [], True: []}
    for entry in question.entries:
        for text, model in said(entry.item()):
            words[model].append(text)
    if not question.entries or question.direction is not Direction.INPUT:
        return
    before = _last_words(question.before, overlap) if question.before is not None else {}
    for model, texts in words.items():
        if any(texts):
            yield "\n".join([before.get(model, ""), *texts]).strip("\n")


def _last_words(transcript: Transcript, overlap: int) -> dict[bool, str]:
    found: dict[bool, str] = {}
    looked_at = 0
    for segment in transcript.segments():
        for entry in reversed(segment.new):
            looked_at += 1
            if looked_at > _LOOKED_AT or len(found) == 2:
                return found
            if len(entry.data) <= _LONGEST:
                for text, model in reversed(list(said(entry.item()))):
                    found.setdefault(model, text[-overlap:] if overlap else "")
    return found
