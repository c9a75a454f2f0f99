"""An agent's loop on a real model: forced to call once, then free."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from turnwire.client.agent import Agent
from turnwire.client.agent.events import AgentEvent, TurnEnded
from turnwire.client.session import Session

if TYPE_CHECKING:
    from turnwire.client._body import CreateFields


async def test_an_agent_calls_a_tool_and_goes_on(session: Session) -> None:
    calls: list[str] = []

    async def list_files(folder: Literal["src", "docs"]) -> str:
        """Lists the files of a folder."""
        calls.append(folder)
        return "README.md setup.py"

    async def read_file(name: Literal["README.md", "setup.py"]) -> str:
        """Reads a file."""
        calls.append(name)
        return "Nothing of interest."

    settings: CreateFields = {"tool_choice": "required", "max_output_tokens": 60, "temperature": 0}

    def free_after_the_first_turn(event: AgentEvent) -> None:
        if isinstance(event, TurnEnded):
            settings["tool_choice"] = "none"

    agent = Agent(
        session,
        model="gemma-3-270m",
        tools=[list_files, read_file],
        instructions="Look before you answer.",
        shape="create",
        settings=settings,
        on_event=free_after_the_first_turn,
    )
    async with asyncio.timeout(50):
        result = await agent.run("What is in the folder src?")
    assert len(calls) == 1
    assert len(result.turns) == 2
    assert result.text
    assert result.totals.tokens.cached > 0
