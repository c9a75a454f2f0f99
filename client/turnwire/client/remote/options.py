"""Settings of a remote backend, each with its reason.

Above it: whoever makes a `RemoteBackend`. Below it: `ChannelOptions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from turnwire.client._channel import ChannelOptions

_MIB: Final = 1024 * 1024

# What stands around the largest event in the message that carries it, and the batch it may complete.
_AROUND_AN_EVENT: Final = 128 * 1024
_LARGEST_EVENT: Final = 64 * _MIB


def _channel_options() -> ChannelOptions:
    # Official clients have no way to fetch what is too large for an event.
    return ChannelOptions(max_message_bytes=_LARGEST_EVENT + _MIB)


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How a remote backend uses its server."""

    channel: ChannelOptions = field(default_factory=_channel_options)
    """How to connect. Messages are let be larger than elsewhere: `max_event_bytes` follows `max_message_bytes`."""
    max_authorizations: int = 256
    """Keys with a session of their own at the same time. The session that was used least recently makes room if nothing
    runs on it; if something does on all of them, the newcomer is refused with `too_many_connections`."""
    max_responses: int = 1024
    """Responses of one key at work at the same time; a further one is refused with `too_many_requests`. The limits of
    the server hold too."""
    max_links: int = 10_000
    """Sessions of their own (`Caller.connect`) at the same time; a further one is refused with
    `too_many_connections`."""

    def __post_init__(self) -> None:
        """Checks that every response is held back by its own reader.

        Raises:
            ValueError: `response_credit_bytes` is 0, so that a slow reader would fill memory without bound.
        """
        if self.channel.response_credit_bytes == 0:
            msg = "a remote backend needs response credit: response_credit_bytes must not be 0"
            raise ValueError(msg)

    def session_channel(self) -> ChannelOptions:
        """Returns how to connect, with the largest event that fits."""
        channel = self.channel
        if channel.max_event_bytes is not None:
            return channel
        room = channel.max_message_bytes - _AROUND_AN_EVENT
        return replace(channel, max_event_bytes=max(4096, min(room, _LARGEST_EVENT)))
