"""Measures the JSON codec: one streamed event, and one long history each way.

Above: the smoke benchmark. Below: `turnwire.v1.json`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.json import decoder, encoder
from turnwire.v1.server_event_pb2 import OutputTextDelta, ServerEvent

ITEMS: Final = 2_000
BYTES: Final = 1_000_000
_REPEATS: Final = 5


def measure() -> dict[str, float]:
    """Measures the codec; takes about half a second.

    Returns:
        The best of a few repeats, since everything else the machine does can only add: `text_delta_encode_us` for one
        filled text delta, `history_decode_ms` and `history_encode_ms` for a create of 1 MB in 2,000 items.
    """
    event = ServerEvent(
        sequence_number=7,
        output_text_delta=OutputTextDelta(item_id=f"msg_{'0' * 50}", output_index=1, content_index=0, delta=" token"),
    )
    encode_event = encoder(ServerEvent, fill=True)
    text = history()
    decode, encode = decoder(ConnectRequest), encoder(ConnectRequest)
    request = decode(text)
    return {
        "text_delta_encode_us": _best(lambda: encode_event(event), 10_000) * 1e6,
        "history_decode_ms": _best(lambda: decode(text), 2) * 1e3,
        "history_encode_ms": _best(lambda: encode(request), 2) * 1e3,
    }


def history() -> bytes:
    """Builds the text of a create with a long history: user messages, function calls and their outputs in turn."""
    share = BYTES // ITEMS
    items: list[dict[str, Any]] = []
    for index in range(ITEMS):
        call = f"call_{index // 3:024d}"
        part = {"type": "input_text", "text": "word " * (share // 5 - 20)}
        items.append(
            (
                {"type": "message", "role": "user", "content": [part]},
                {
                    "type": "function_call",
                    "id": f"fc_{index:050d}",
                    "call_id": call,
                    "name": "read_file",
                    "arguments": json.dumps({"path": "src/" + "a" * (share // 2)}),
                    "status": "completed",
                },
                {"type": "function_call_output", "call_id": call, "output": "a line of code\n" * (share // 15)},
            )[index % 3]
        )
    return json.dumps({"type": "response.create", "model": "m", "input": items}).encode()


def _best(act: Callable[[], object], times: int) -> float:
    act()
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(times):
            act()
        best = min(best, (time.perf_counter() - start) / times)
    return best
