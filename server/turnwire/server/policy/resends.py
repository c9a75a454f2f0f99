"""What a request sends once more: the conversation that it begins with, where the server has it in memory.

Above it: `prepare`, which goes on with the rest. Below it: the conversations and marks of the core. Looking costs what
was sent, at the speed of a hash; all other stages then cost what is new.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from turnwire.server.session.conversations import Conversation
from turnwire.server.session.effects import Prepare
from turnwire.server.session.transcript import EMPTY
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError

_INDEX: Final = re.compile(r"input\[(\d+)\]")


def known_beginning(request: Prepare, model: str, marks: Sequence[bytes]) -> tuple[Conversation | None, int]:
    """Returns the conversation that a request begins with, and how many of its items say it; none and 0 for none.

    A request that names what it continues brings what is new only. One that asks for `truncation` may go on from a
    conversation without its beginning, which it would be left without itself.

    Args:
        request: The request.
        model: Its resolved model: another one may take other items.
        marks: Of all of its items.
    """
    conversations = request.conversations
    if conversations is None or request.history is not EMPTY:
        return None, 0
    request.visits.note("match", len(marks), request.size)
    truncated = request.settings.truncation == "auto"
    match = conversations.find(request.principal, model, marks, truncated=truncated)
    return (None, 0) if match is None else (match.conversation, match.items)


def shifted(refusal: RequestError, known: int) -> RequestError:
    """Returns a refusal of one of the items behind the known ones, with its place in the whole request."""
    error = Error()
    error.CopyFrom(refusal.error)

    def count(found: re.Match[str]) -> str:
        return f"input[{int(found[1]) + known}]"

    error.param = _INDEX.sub(count, error.param)
    error.message = _INDEX.sub(count, error.message)
    return RequestError(error)
