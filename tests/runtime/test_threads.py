"""Where parsing happens."""

from __future__ import annotations

import threading

import pytest

from turnwire.server.runtime.threads import PARSE_BYTES, parsed
from turnwire.v1.errors import RequestError, reject


async def test_what_is_big_is_parsed_beside_the_event_loop() -> None:
    here = threading.get_ident()

    assert await parsed(threading.get_ident, PARSE_BYTES) == here
    assert await parsed(threading.get_ident, PARSE_BYTES + 1) != here


async def test_refusals_come_out_of_the_thread() -> None:
    def refuse() -> None:
        raise reject("invalid_json", "no")

    with pytest.raises(RequestError, match="no"):
        await parsed(refuse, PARSE_BYTES + 1)
