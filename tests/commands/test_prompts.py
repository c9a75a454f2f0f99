"""What commands ask, and whom."""

from __future__ import annotations

import click
import pytest

from turnwire.client import TurnwireError
from turnwire.client.commands.prompts import pick_model
from turnwire.v1.responses_service_pb2 import Model

SCRIPTED = Model(id="demo", engine="scripted")
REAL = Model(id="gpt-oss-20b", engine="chat")


class Service:
    def __init__(self, *models: Model, error: TurnwireError | None = None) -> None:
        self.models = list(models)
        self.error = error

    async def list_models(self) -> list[Model]:
        if self.error is not None:
            raise self.error
        return self.models


@pytest.mark.parametrize(
    ("wanted", "picked", "simulated"),
    [(None, "demo", True), ("demo", "demo", True), ("gpt-oss-20b", "gpt-oss-20b", False), ("new", "new", False)],
)
async def test_a_simulated_model_is_said_to_be_one(
    wanted: str | None, picked: str, simulated: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await pick_model(Service(SCRIPTED, REAL), wanted) == picked
    assert capsys.readouterr().err == ("note: the model is a scripted simulation\n" if simulated else "")


async def test_a_server_that_cannot_list_its_models_matters_only_where_none_is_named() -> None:
    broken = Service(error=TurnwireError("not today"))
    assert await pick_model(broken, "m") == "m"
    with pytest.raises(TurnwireError, match="not today"):
        await pick_model(broken, None)
    with pytest.raises(click.UsageError, match="name one with --model"):
        await pick_model(Service(), None)
