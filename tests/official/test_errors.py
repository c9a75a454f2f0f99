from __future__ import annotations

import msgspec
import pytest

from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import ERRORS, Remedy, make_error
from turnwire.v1.official.errors import answer_headers, error_body, error_frame, http_status


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_code_has_its_status_and_all_four_keys_everywhere(code: str) -> None:
    error = make_error(code, "it failed", param="input")
    said = {"type": ERRORS[code].type, "code": code, "message": "it failed", "param": "input"}

    assert http_status(error) == ERRORS[code].http_status
    assert msgspec.json.decode(error_body(error)) == {"error": said}
    assert msgspec.json.decode(error_frame(error)) == {
        "type": "error",
        "status": ERRORS[code].http_status,
        "error": said,
    }


def test_a_parameter_that_is_not_at_fault_is_null() -> None:
    assert msgspec.json.decode(error_body(make_error("server_error", "x")))["error"]["param"] is None


def test_a_frame_names_the_lane_and_its_place() -> None:
    frame = msgspec.json.decode(error_frame(make_error("server_error", "x"), stream_id="a", sequence_number=3))

    assert (frame["stream_id"], frame["sequence_number"]) == ("a", 3)


def test_waiting_is_told_in_the_headers_and_in_the_frame() -> None:
    error = make_error("rate_limit_exceeded", "slow down", retry_after=1.25)

    assert answer_headers(error) == {"retry-after": "2", "retry-after-ms": "1250"}
    assert msgspec.json.decode(error_frame(error))["headers"] == {"retry-after": "2", "retry-after-ms": "1250"}


def test_sdks_are_kept_from_sending_again_what_would_fail_again() -> None:
    held = {code for code in ERRORS if answer_headers(make_error(code, "x")).get("x-should-retry") == "false"}

    assert {"insufficient_quota", "hold_timeout", "request_id_reused", "not_implemented"} <= held
    assert all(ERRORS[code].remedy not in (Remedy.RETRY, Remedy.RECONNECT) for code in held)


def test_a_missing_key_is_asked_for() -> None:
    assert answer_headers(make_error("invalid_api_key", "x")) == {"www-authenticate": "Bearer"}


@pytest.mark.parametrize(
    ("type_", "status"),
    [("invalid_request_error", 400), ("rate_limit_error", 429), ("authentication_error", 401), ("server_error", 500)],
)
def test_a_code_of_a_newer_server_is_read_by_its_type(type_: str, status: int) -> None:
    assert http_status(Error(type=type_, code="brand_new", message="x")) == status


def test_clients_always_get_strings_to_decide_by() -> None:
    said = msgspec.json.decode(error_frame(Error(message="x")))["error"]

    assert (said["type"], said["code"]) == ("server_error", "server_error")


def test_a_frame_is_one_line() -> None:
    assert b"\n" not in error_frame(Error(code="server_error", type="server_error", extra_json='{"a":\n1}'))
