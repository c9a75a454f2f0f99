from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from turnwire.server.engine.chat import errors
from turnwire.server.session.chunks import EngineFailure
from turnwire.v1.errors import ERRORS

NOW = 1_800_000_000.0


def of(status: int, body: object = "", **headers: str) -> EngineFailure:
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    failure = errors.of_response(status, named, data, secrets=("sk-verysecret", "hunter22"), now=NOW)
    assert failure.code in ERRORS
    return failure


OVERFLOWS = [
    # OpenAI
    {"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192 tokens."}},
    {"error": {"message": "Input tokens exceed the configured limit", "code": "context_length_exceeded"}},
    # vLLM, new and old
    {"error": {"message": "This model's maximum context length is 10 tokens. However, you requested 12", "code": 400}},
    {"object": "error", "message": "The decoder prompt (length 9) is longer than the maximum model length of 4"},
    {"error": {"message": "'max_tokens' is too large: 99. This model's maximum context length is 9 tokens"}},
    # SGLang
    {"message": "The input (9 tokens) is longer than the model's context length (4 tokens)."},
    # llama.cpp
    {"error": {"code": 400, "message": "no", "type": "exceed_context_size_error", "n_ctx": 8}},
    {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
    # Ollama, LM Studio and others
    {"error": "the prompt is too long: 9 tokens exceeds the context window"},
    {"detail": "Requested tokens (2285) exceed context window of 2048"},
]


@pytest.mark.parametrize("body", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_every_way_to_say_that_the_prompt_is_too_long_is_understood(body: object, status: int) -> None:
    assert of(status, body).code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"message": "bad 'tools'"}}, "invalid_request_error"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "invalid_request_error"),
        (404, {"error": {"message": "The model `x` does not exist."}}, "model_not_found"),
        (404, {"detail": "Not Found"}, "server_error"),
        (405, "", "server_error"),
        (401, "", "server_error"),
        (403, "", "server_error"),
        (402, "", "insufficient_quota"),
        (408, "", "engine_unavailable"),
        (413, "", "request_too_large"),
        (429, "", "rate_limit_exceeded"),
        (
            429,
            {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}},
            "insufficient_quota",
        ),
        (500, {"error": "boom"}, "server_error"),
        (500, {"error": "The engine is currently overloaded"}, "server_is_overloaded"),
        (502, "<html>", "engine_unavailable"),
        (503, "", "server_is_overloaded"),
        (503, {"error": {"message": "Loading model", "code": 503}}, "engine_unavailable"),
        (504, "", "engine_unavailable"),
        (529, "", "server_is_overloaded"),
        (302, "", "server_error"),
        (999, "", "server_error"),
        (204, "", "server_error"),
    ],
)
def test_statuses_become_codes(status: int, body: object, code: str) -> None:
    assert of(status, body).code == code


def test_the_clients_mistakes_are_explained_in_the_upstreams_words() -> None:
    assert "bad 'tools'" in of(400, {"error": {"message": "bad 'tools'"}}).message
    assert "field required" in of(422, {"detail": [{"msg": "field required"}]}).message


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_no_secret_is_repeated(status: int) -> None:
    text = "model: wrong key sk-verysecret or hunter22, Bearer abc.def, sk-proj_1234567890abc"
    message = of(status, {"error": {"message": text}}).message
    assert not any(secret in message for secret in ("verysecret", "hunter22", "abc.def", "1234567890abc"))


def test_refused_credentials_say_nothing_more() -> None:
    assert of(401, {"error": {"message": "key of org-x"}}).message == "The upstream refused the server's credentials."


def test_huge_words_are_cut_and_kept_to_one_line() -> None:
    message = of(400, {"error": {"message": "no\n\x00\x1b[31m " + "x" * 100_000}}).message
    assert len(message) < 400
    assert message.isprintable()


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b"[]", b"null", b'{"error": []}', b'{"error": {"message": {"a": 1}}}', b"{" * 5000, b"7"]
)
@pytest.mark.parametrize("status", [400, 429, 500])
def test_any_body_makes_a_failure(body: bytes, status: int) -> None:
    assert of(status, body).message.isprintable()


def test_retry_after_is_read_in_all_its_forms() -> None:
    date = format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True)
    past = format_datetime(datetime.fromtimestamp(NOW - 30, UTC), usegmt=True)
    assert of(429, retry_after="2").retry_after == 2
    assert of(429, Retry_After="1.5").retry_after == 1.5
    assert of(429, retry_after_ms="250", retry_after="9").retry_after == 0.25
    assert of(429, retry_after=date).retry_after == 30
    assert of(429, retry_after=past).retry_after == 0
    assert of(503, retry_after="7").retry_after == 7
    assert of(429).retry_after is None
    assert of(503).retry_after == errors.RETRY_PAUSE


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "", "Mon, 99 Foo 2026"])
def test_nonsense_in_retry_after_is_ignored(text: str) -> None:
    assert of(429, retry_after=text).retry_after is None


def test_an_endless_pause_is_a_day_at_most() -> None:
    assert of(429, retry_after="1e12").retry_after == 86_400


def test_errors_within_a_stream_go_by_the_status_they_name() -> None:
    assert errors.of_frame({"code": 429, "message": "slow down"}).code == "rate_limit_exceeded"
    assert errors.of_frame({"status": 503, "message": "no"}).code == "server_is_overloaded"
    assert errors.of_frame({"code": "x", "message": "no"}).code == "server_error"
    assert errors.of_frame(7).code == "server_error"
