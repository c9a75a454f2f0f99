"""The official SDK for Node: HTTP, SSE and `ResponsesWS`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .harness.node import run_script
from .harness.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

HEAD = """
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "a-key", maxRetries: 0 });
const model = "scripted";
const tell = (value) => console.log(JSON.stringify(value));
"""
TURNS = """
const socket = new ResponsesWS(client);
async function turn(event) {
  socket.send({ type: "response.create", model, ...event });
  const types = [];
  for await (const each of socket) {
    if (each.type === "error") throw each.error;
    if (each.type !== "message") continue;
    types.push(each.message.type);
    if (["response.completed", "response.failed", "response.incomplete", "error"].includes(each.message.type))
      return { last: each.message, types };
  }
}
"""


def run(server: Server, folder: Path, script: str) -> list[Any]:
    said = run_script(HEAD + script, folder, BASE_URL=server.base_url)
    return [json.loads(line) for line in said.splitlines()]


def test_creates_and_streams(sdk_server: Server, tmp_path: Path) -> None:
    script = """
    const response = await client.responses.create({ model, input: "Say hello" });
    tell(response.output_text);
    const stream = client.responses.stream({ model, input: "Think first" });
    const numbers = [];
    for await (const event of stream) numbers.push(event.sequence_number);
    const final = await stream.finalResponse();
    tell([numbers, final.output_text]);
    tell((await client.responses.retrieve(final.id)).status);
    """
    text, (numbers, streamed), status = run(sdk_server, tmp_path, script)
    assert text == "Hello! I play a scenario."
    assert numbers == list(range(len(numbers)))
    assert (streamed, status) == ("It is 42.", "completed")


def test_errors_are_those_of_the_sdk(sdk_server: Server, tmp_path: Path) -> None:
    script = """
    for (const fields of [{ model: "unheard-of" }, { temperature: 9 }, { previous_response_id: "resp_unknown" }])
      await client.responses.create({ model, input: "Say hello", ...fields })
        .catch((error) => tell([error.constructor.name, error.status, error.code, error.param]));
    """
    assert run(sdk_server, tmp_path, script) == [
        ["NotFoundError", 404, "model_not_found", "model"],
        ["BadRequestError", 400, "invalid_value", "temperature"],
        ["BadRequestError", 400, "previous_response_not_found", "previous_response_id"],
    ]


def test_tool_calls_go_on_over_one_socket(sdk_server: Server, tmp_path: Path) -> None:
    script = """
    const tools = [{ type: "function", name: "get_weather", parameters: { type: "object" }, strict: null }];
    const warm = await turn({ input: "What is the weather?", tools, store: false, generate: false });
    tell(warm.types);
    const first = await turn({ previous_response_id: warm.last.response.id, input: [], tools, store: false });
    const calls = first.last.response.output.filter((item) => item.type === "function_call");
    tell(calls.map((call) => JSON.parse(call.arguments).city));
    const input = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "70.7 fahrenheit" }));
    const second = await turn({ previous_response_id: first.last.response.id, input, tools, store: false });
    tell(second.last.response.output.at(-1).content[0].text);
    socket.close();
    """
    warm, cities, text = run(sdk_server, tmp_path, TURNS + script)
    assert warm == ["response.created", "response.in_progress", "response.completed"]
    assert cities == ["Oslo", "Rome"]
    assert text == "Rome has 70.7 degrees Fahrenheit, Oslo is colder."


def test_a_refused_create_leaves_the_socket_usable(sdk_server: Server, tmp_path: Path) -> None:
    script = """
    const socket = new ResponsesWS(client);
    socket.on("error", (error) => {
      tell([error.error.status, error.error.error.code, error.error.error.param]);
      socket.send({ type: "response.create", model, input: "Say hello" });
    });
    socket.on("response.completed", (event) => {
      tell(event.response.output[0].content[0].text);
      socket.close();
    });
    socket.send({ type: "response.create", model, input: "Say hello", previous_response_id: "resp_unknown" });
    """
    assert run(sdk_server, tmp_path, script) == [
        [400, "previous_response_not_found", "previous_response_id"],
        "Hello! I play a scenario.",
    ]
