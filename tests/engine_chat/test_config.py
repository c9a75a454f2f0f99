from __future__ import annotations

import pytest

from turnwire.server.engine.chat.config import ChatEngineConfig


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/models"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/models"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/models"),
        ("https://host/api/openai/v1/", "https://host/api/openai/v1/models"),
    ],
)
def test_the_version_is_added_to_an_address_without_a_path(base: str, url: str) -> None:
    assert ChatEngineConfig(base).url("/models") == url


@pytest.mark.parametrize("base", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://me:pw@x/v1", "http://x/v1?a=b"])
def test_what_is_no_address_of_an_upstream_is_refused(base: str) -> None:
    with pytest.raises(ValueError, match="address"):
        ChatEngineConfig(base)


def test_an_unknown_flavour_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of generic, openai, vllm, llamacpp, ollama"):
        ChatEngineConfig("http://x", flavour="gpt")


def test_secrets_are_not_shown() -> None:
    shown = repr(ChatEngineConfig("http://x", api_key="sk-verysecret", headers={"X-Token": "hunter22"}))
    assert "verysecret" not in shown
    assert "hunter22" not in shown
