"""The agent: local tools, and the loop that lets a model call them over one session.

    agent = Agent(session, model="m", tools=Workspace(folder).tools())
    result = await agent.run("Make the tests pass.")

`loop` runs it, `tools` and `workspace` are what it can do, `report` says where the time went, `events` what happens
meanwhile.
"""

from turnwire.client.agent.events import AgentEvent, Streamed, ToolFinished, ToolStarted, TurnEnded, TurnStarted
from turnwire.client.agent.loop import Agent, AgentError, AgentResult, Shape, TurnLimitError
from turnwire.client.agent.report import Outcome, RunTotals, TokenCounts, ToolReport, TurnReport, totals
from turnwire.client.agent.tools import Tool, ToolDefinition, ToolError, ToolResult, ToolSet, tool
from turnwire.client.agent.workspace import Workspace

__all__ = [
    "Agent",
    "AgentError",
    "AgentEvent",
    "AgentResult",
    "Outcome",
    "RunTotals",
    "Shape",
    "Streamed",
    "TokenCounts",
    "Tool",
    "ToolDefinition",
    "ToolError",
    "ToolFinished",
    "ToolReport",
    "ToolResult",
    "ToolSet",
    "ToolStarted",
    "TurnEnded",
    "TurnLimitError",
    "TurnReport",
    "TurnStarted",
    "Workspace",
    "tool",
    "totals",
]
