"""How turnwire's own messages stand in the bodies of HTTP, for both ends of it.

Above it: `binary`, and the client's one-shot methods over HTTP. Below it: nothing. A body is one message, or where a
method streams, frames: a byte that tells the kind, four bytes of length, big-endian, and as many bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

PROTO: Final = "application/proto"
"""Content type of a message."""
FRAMES: Final = "application/vnd.turnwire.frames"
"""Content type of a stream of frames."""
MESSAGE: Final = 0
"""The kind of a frame that is a message of the method's; one without events is a sign of life."""
ERROR: Final = 1
"""The kind of a frame that is a `turnwire.v1.Error`, by which the stream ends."""
HEAD: Final = Struct("!BI")
"""What a frame begins with: kind and length."""


def frame(kind: int, data: bytes) -> bytes:
    """Returns a frame."""
    return HEAD.pack(kind, len(data)) + data
