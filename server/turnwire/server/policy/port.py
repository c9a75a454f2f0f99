"""What checks requests, as its callers see it.

Above it: the runtime, which calls it. Below it: the checks themselves, and what is put around them, such as screening.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwire.server.media.found import Found
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.transcript import Entry
from turnwire.server.session.visits import Visits
from turnwire.v1.item_pb2 import Item


class RequestPolicy(Protocol):
    """Checks requests and makes their items ready; safe to call from threads."""

    def prepare(self, request: Prepare, found: Found = ...) -> Prepared:
        """Checks a create; raises RequestError, and MediaWanted where something has to be known of URLs first."""
        ...

    def prepare_append(
        self,
        items: Sequence[Item],
        visits: Visits,
        conversations: Conversations | None,
        model: str = ...,
        found: Found = ...,
    ) -> tuple[Entry, ...]:
        """Checks appended items; raises as `prepare` does."""
        ...
