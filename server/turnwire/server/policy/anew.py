"""What a turn does again about its history where that is asked for: the way of a server that keeps nothing.

Above it: the runtime, before each pass. Below it: the checks that new items go through, and the transcript. Nothing is
decided here: what was taken once is taken, and only what it cost to find that out is spent again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from turnwire.server.media.parts import has_media
from turnwire.server.media.reader import MediaReader
from turnwire.server.policy.item_checks import check_items
from turnwire.server.session.calls import NO_CALLS, pair
from turnwire.server.session.prompt import Prompt
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item


@dataclass(frozen=True, slots=True)
class Anew:
    """Goes through a conversation once more before a pass, as far as the prompt's switches say."""

    media: MediaReader
    """Looks at images and files."""

    def __call__(self, prompt: Prompt) -> None:
        """Costs the whole conversation for each of `item_cache` and `incremental_validation` that is off, else
        nothing."""
        if not prompt.switches.item_cache:
            _decode(prompt)
        if not prompt.switches.incremental_validation:
            self._check(prompt)

    def _check(self, prompt: Prompt) -> None:
        history = prompt.transcript
        items = [entry.sent() for entry in history.walk()]
        prompt.visits.note("validate", len(items), history.bytes)
        prompt.visits.note("pair", len(items))
        # What the model said is not held to what clients may say, and what was shortened may lack its calls.
        with suppress(RequestError):
            check_items(items, len(items))
        with suppress(RequestError):
            pair(NO_CALLS, items)
        if not has_media(items):
            return
        read = [entry.item() for entry in history.walk()]
        for index, item in enumerate(read):
            with suppress(RequestError):
                seen = self.media.read(item, index)
                prompt.visits.note("account", 1 if seen.parts else 0, seen.bytes)


def _decode(prompt: Prompt) -> None:
    for entry in prompt.transcript.walk():
        Item.FromString(entry.data).SerializeToString()
    prompt.visits.note("decode", prompt.transcript.length, prompt.transcript.bytes)
