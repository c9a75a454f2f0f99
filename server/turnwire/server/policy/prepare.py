"""Preparation: from a request to entries of a transcript, or to the error that says why not.

Above: the runtime, which answers the core's `Prepare` and `PrepareAppend` with what comes back. Below: the checks of
this package and the pairing of the session core. Only what is new is looked at, whatever the length of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from turnwire.server.engine.profile import ALL, PLAIN, ModelProfile, Takes
from turnwire.server.media.found import NOTHING, Found
from turnwire.server.media.parts import has_media
from turnwire.server.media.reader import MediaReader, Read
from turnwire.server.policy import json_text
from turnwire.server.policy.choice_checks import check_choice
from turnwire.server.policy.context_rules import compact_threshold
from turnwire.server.policy.item_checks import check_appended, check_items
from turnwire.server.policy.model_checks import check_files, check_images, check_model
from turnwire.server.policy.refusals import missing, shown, too_many
from turnwire.server.policy.replays import SEALED, FindItems, Notices, Replays, Unnoticed, note_opaque
from turnwire.server.policy.resends import known_beginning, shifted
from turnwire.server.policy.schemas import Schemas
from turnwire.server.policy.settings_checks import check_settings
from turnwire.server.policy.tool_checks import HostedCatalogue, NothingHosted, ToolChecks
from turnwire.server.sealing import Seals
from turnwire.server.session.calls import pair, require_answered
from turnwire.server.session.conversations import Conversation, Conversations
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.hosted import approvals, listings
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.marks import UNKNOWN
from turnwire.server.session.transcript import Entry, Origin, Transcript, count_turns, item_text
from turnwire.server.session.visits import Visits
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.item_pb2 import Item

ITEM_OVERHEAD: Final = 4
"""Tokens that an item costs beside its text: about what a renderer writes around it. Counts made here are running
counts, good for limits and for usage until rendering gives the exact ones."""


class ResolveModel(Protocol):
    """Knows the models that are served."""

    def __call__(self, name: str, /) -> str:
        """Returns the resolved name of a model.

        Raises:
            LookupError: There is no such model.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Brought:
    """Items of a request, in four forms of one length."""

    sent: Sequence[Item]
    """As they came."""
    items: Sequence[Item]
    """Read as what they are, where they came as opaque, or refer to others."""
    read: Sequence[Item]
    """As prompts read them, with what was sealed."""
    marks: Sequence[bytes]
    """Of `read`."""

    def behind(self, count: int) -> _Brought:
        """Returns all but so many at the beginning."""
        if not count:
            return self
        return _Brought(self.sent[count:], self.items[count:], self.read[count:], self.marks[count:])


class Preparer:
    """Checks requests and makes their items ready. Safe to use from several threads at once."""

    def __init__(
        self,
        models: ResolveModel,
        limits: SessionLimits,
        *,
        count: Callable[[str], int],
        hosted: HostedCatalogue | None = None,
        profile: Callable[[str], ModelProfile] = lambda _: PLAIN,
        seals: Seals | None = None,
        find_items: FindItems = lambda principal, ids: {},
        notices: Notices | None = None,
        media: MediaReader | None = None,
        takes: Callable[[str], Takes] = lambda _: ALL,
        schemas: Schemas | None = None,
    ) -> None:
        """Takes what it depends on.

        Args:
            models: Resolves names of models.
            limits: How many items and tools a request may have.
            count: Counts the tokens of a text.
            hosted: Says which declared tools the server runs; None where it runs none.
            profile: Returns the profile of a resolved model; by default all take everything.
            seals: Opens what was sealed; None opens nothing.
            find_items: Finds items that are referred to and not of the chain; by default there are none.
            notices: Hears what is carried without being read.
            media: Reads images and files; by default, within the limits of a server that was told nothing.
            takes: Returns what can be handed on to a resolved model beside texts; by default everything.
            schemas: Checks JSON schemas; by default one that remembers them.
        """
        self._notices = notices or Unnoticed()
        self._replays = Replays(seals or Seals.fresh(), find_items, self._notices)
        self._profile = profile
        self._media = media or MediaReader()
        self._takes = takes
        self._models = models
        self._limits = limits
        self._count = count
        self._schemas = schemas or Schemas()
        self._tools = ToolChecks(limits.max_tools, hosted or NothingHosted(), self._schemas, self._notices)

    def prepare(self, request: Prepare, found: Found = NOTHING) -> Prepared:
        """Checks a create and makes its items ready.

        No items at all are valid: a warm-up has none, and the previous response may leave something to answer.

        Args:
            request: The create.
            found: What is known of the URLs in it.

        Raises:
            turnwire.server.media.found.MediaWanted: Something has to be known of URLs first; nothing was noted yet.
            turnwire.v1.errors.RequestError: The request cannot be taken.
        """
        check_settings(request.settings, self._schemas)
        model = self._resolve(request.settings.model)
        self._tools.check(request.tools)
        check_choice(request.settings, request.tools)
        # Once for all: most requests have nothing to replay.
        kinds = {item.WhichOneof("kind") for item in request.items}
        items = self._replays.typed(request.items) if "opaque" in kinds else request.items
        if len(items) > self._limits.max_items:
            raise too_many("input", self._limits.max_items, len(items))
        read: Sequence[Item] = items
        if not kinds.isdisjoint(SEALED):
            read = [self._replays.opened(item, request.principal) for item in items]
        marks = self._marks(read, request.conversations)
        known, count = known_beginning(request, model, marks)
        try:
            made = self._made(request, model, _Brought(request.items, items, read, marks), known, count, kinds, found)
        except RequestError as refusal:
            if not count:
                raise
            raise shifted(refusal, count) from None
        return made

    def _made(
        self,
        request: Prepare,
        model: str,
        brought: _Brought,
        known: Conversation | None,
        count: int,
        kinds: Collection[str | None],
        found: Found,
    ) -> Prepared:
        """Checks the items behind the known ones, and makes them ready."""
        visits = request.visits
        new = brought.behind(count)
        items = new.items
        check_items(items, self._limits.max_items)
        validated = len(items), request.size if not count else sum(item.ByteSize() for item in items)
        history = request.history if known is None else known.transcript
        if "item_reference" in kinds:
            new = self._resolved(new, request, history)
            items = new.items
        profile = self._profile(model)
        check_model(request.settings, tools=bool(request.tools.data), profile=profile)
        media = has_media(new.read)
        if media:
            check_images(new.read, profile, self._takes(model))
        open_calls = pair(request.open_calls if known is None else known.transcript.open_calls, items)
        require_answered(open_calls)
        if media:
            self._media.require(new.read, found)
        # From here on, nothing is done twice.
        visits.note("validate", *validated)
        visits.note("pair", len(items))
        note_opaque(new.sent, self._notices)
        self._note(request)
        entries = self._entries(new, Origin.INPUT, visits, model, found)
        turns = count_turns(items)
        if known is not None:
            # As if all of them were new: who plays turns by their number must not see whether any were known.
            turns = count_turns(brought.items) - known.transcript.turns
        return Prepared(
            model,
            entries,
            open_calls,
            turns,
            listings(items, entries),
            approvals(items),
            known,
            compact_threshold(request.settings, self._profile(model).context_length),
            compact_now="compaction_trigger" in kinds and _triggers(brought.items),
            compact_only=bool(brought.items) and brought.items[-1].HasField("compaction_trigger"),
        )

    def _resolved(self, new: _Brought, request: Prepare, history: Transcript) -> _Brought:
        """Returns items with references replaced by what they refer to."""
        items = self._replays.resolved(new.items, request.principal, history)
        read = [
            before if item is came else self._replays.opened(item, request.principal)
            for item, came, before in zip(items, new.items, new.read, strict=True)
        ]
        return _Brought(new.sent, items, read, self._marks(read, request.conversations))

    def _marks(self, read: Sequence[Item], conversations: Conversations | None) -> Sequence[bytes]:
        if conversations is None:
            return [UNKNOWN] * len(read)
        return [conversations.marker.mark(item) for item in read]

    def prepare_append(
        self,
        items: Sequence[Item],
        visits: Visits | None = None,
        conversations: Conversations | None = None,
        model: str = "",
        found: Found = NOTHING,
    ) -> tuple[Entry, ...]:
        """Checks the items of an append and makes them ready; which calls they answer is checked by the core.

        Args:
            items: What is appended.
            visits: Where it is noted what was looked at.
            conversations: What the items may be known by later.
            model: The resolved model that will read them.
            found: What is known of the URLs in them.

        Raises:
            turnwire.server.media.found.MediaWanted: Something has to be known of URLs first; nothing was noted yet.
            turnwire.v1.errors.RequestError: An item cannot be taken.
        """
        check_appended(items, self._limits.max_items)
        if has_media(items):
            check_images(items, self._profile(model), self._takes(model))
            self._media.require(items, found)
        visits = visits or Visits()
        visits.note("validate", len(items))
        note_opaque(items, self._notices)
        brought = _Brought(items, items, items, self._marks(items, conversations))
        return self._entries(brought, Origin.APPEND, visits, model, found)

    def _note(self, request: Prepare) -> None:
        """Counts what is carried without being read."""
        if request.settings.extra_json:
            for key in json_text.members(request.settings.extra_json) or ():
                self._notices.opaque("field", key)

    def _resolve(self, name: str) -> str:
        if not name:
            raise missing("model")
        try:
            return self._models(name)
        except LookupError:
            message = f"The requested model '{shown(name)}' does not exist."
            raise reject("model_not_found", message, param="model", model=shown(name)) from None

    def _entries(self, new: _Brought, origin: Origin, visits: Visits, model: str, found: Found) -> tuple[Entry, ...]:
        """Makes the entries of items, with the items that prompts read: the same ones, or others in their places."""
        shown = self._seen(new.read, visits, model, found)
        entries = tuple(
            Entry(
                item.SerializeToString(),
                origin,
                self._count(item_text(each.item)) + each.tokens + ITEM_OVERHEAD,
                None if each.item is item else each.item.SerializeToString(),
                mark,
            )
            for item, each, mark in zip(new.sent, shown, new.marks, strict=True)
        )
        visits.note("count", len(entries), sum(entry.tokens for entry in entries))
        return entries

    def _seen(self, items: Sequence[Item], visits: Visits, model: str, found: Found) -> list[Read]:
        """Looks at the images and files of items, and counts what is none of their text."""
        if not has_media(items):
            return [Read(item) for item in items]
        rule = self._profile(model).image_rule
        seen = [self._media.read(item, index, rule, found) for index, item in enumerate(items)]
        looked = [each for each in seen if each.parts]
        visits.note("account", len(looked), sum(each.bytes for each in looked))
        # Behind reading: a file that is a text is one no more.
        check_files([each.item for each in seen], self._takes(model))
        return seen


def _triggers(items: Sequence[Item]) -> bool:
    """Whether an item asks for a compaction that did not follow: who resends a history resends what was asked in it."""
    for item in reversed(items):
        if item.HasField("compaction_trigger"):
            return True
        if item.HasField("compaction"):
            return False
    return False
