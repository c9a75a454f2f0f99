"""Every code of the table is proven somewhere, or cannot be caused by a client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.errors.bad import BAD

from turnwire.v1.errors import ERRORS

_HERE: Final = Path(__file__).parent
_ELSEWHERE: Final = {
    "array_above_max_length": "tests/policy/test_items.py",
    "append_index_conflict": "tests/conformance/hold.yaml",
    "first_token_timeout": "tests/conformance/timeouts.yaml",
    "hold_timeout": "tests/conformance/timeouts.yaml",
    "lane_held": "tests/conformance/hold.yaml",
    "lane_limit_reached": "tests/conformance/lanes.yaml",
    "missing_event": "tests/conformance/session.yaml",
    "request_id_reused": "tests/conformance/requests.yaml",
    "response_timeout": "tests/conformance/timeouts.yaml",
    "server_shutting_down": "tests/bridge/test_trouble.py",
    "session_already_open": "tests/conformance/session.yaml",
    "session_closing": "tests/conformance/session.yaml",
    "session_lost": "tests/bridge/test_trouble.py",
    "slow_consumer": "tests/grpc/test_oneshot.py",
    "too_many_connections": "tests/websocket/test_upgrade.py",
    "unknown_event": "tests/conformance/session.yaml",
    "upgrade_required": "tests/http/test_connections.py",
    "websocket_connection_limit_reached": "tests/conformance/websocket_rules.yaml",
}
"""What concerns one kind of door only, or needs a clock: where it is proven."""
_NEVER: Final = {
    "unknown_parameter": "unknown keys are carried",
    "not_implemented": "what the server does not do has codes of its own; proxies and older servers say it",
}
"""What this server never says."""


def test_every_code_is_proven_or_never_said() -> None:
    here = {bad.code for bad in BAD}
    for path in _HERE.glob("test_*.py"):
        if path != Path(__file__):
            text = path.read_text()
            here |= {code for code in ERRORS if f'"{code}"' in text}
    # What is said of images has tests of its own.
    media = "".join(path.read_text() for path in (_HERE.parent / "media").glob("test_*.py"))
    here |= {code for code in ERRORS if "image" in code and code in media}
    assert set(ERRORS) - here - set(_ELSEWHERE) - set(_NEVER) == set()
    for code, place in _ELSEWHERE.items():
        assert code in (_HERE.parents[1] / place).read_text(), (code, place)


def test_a_bad_body_is_refused_by_a_code_of_the_table_with_its_status() -> None:
    for bad in BAD:
        assert ERRORS[bad.code].http_status == bad.status, bad.name
