"""Keys, as the official SDK shows them: over HTTP and at the upgrade to WebSocket; and what other keys may see."""

from __future__ import annotations

from collections.abc import Generator

import openai
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus

from .harness.server import Server, serving

MODEL = "scripted"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    folder = tmp_path_factory.mktemp("guarded")
    keys = folder / "keys.txt"
    keys.write_text("ada: key-of-ada\nbob: key-of-bob\n", encoding="utf-8")
    keys.chmod(0o600)
    with serving("sdk", folder, "--api-key-file", str(keys)) as server:
        yield server


def client(server: Server, key: str) -> OpenAI:
    return OpenAI(base_url=server.base_url, api_key=key, max_retries=0, timeout=20)


def test_a_wrong_key_is_an_authentication_error(guarded: Server) -> None:
    with client(guarded, "key-of-eve") as eve:
        with pytest.raises(openai.AuthenticationError) as refused:
            eve.responses.create(model=MODEL, input="Say hello")
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            eve.models.list()
        with pytest.raises(InvalidStatus) as shut, eve.responses.connect():
            pass
        assert shut.value.response.status_code == 401


def test_a_response_is_seen_by_its_own_key_only(guarded: Server) -> None:
    with client(guarded, "key-of-ada") as ada, client(guarded, "key-of-bob") as bob:
        hers = ada.responses.create(model=MODEL, input="Say hello")
        assert ada.responses.retrieve(hers.id).output_text == "Hello! I play a scenario."
        for look in (bob.responses.retrieve, bob.responses.delete, bob.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                look(hers.id)
        with pytest.raises(openai.BadRequestError) as refused:
            bob.responses.create(model=MODEL, previous_response_id=hers.id, input="Say hello")
        assert refused.value.code == "previous_response_not_found"
        with bob.responses.connect() as connection:
            connection.response.create(model=MODEL, previous_response_id=hers.id, input="Say hello")
            event = connection.recv()
            assert event.type == "error"
            assert event.error.code == "previous_response_not_found"
        assert ada.responses.retrieve(hers.id).status == "completed"
