"""What is wrong with an HTTP request beyond the body of a create, alike at the server's own door and at a bridge."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.bridge.scene import bridging, serving

pytestmark = pytest.mark.parametrize("door", ["http", "bridge"])


@asynccontextmanager
async def base_of(door: str) -> AsyncGenerator[str]:
    async with serving(http=True) as server:
        if door == "bridge":
            async with bridging(server) as stage:
                yield f"http://127.0.0.1:{stage.port}"
            return
        yield f"http://127.0.0.1:{server.http_port}"


async def refused(base: str, method: str, path: str, **more: Any) -> tuple[int, str, str | None]:
    async with aiohttp.ClientSession() as http, http.request(method, base + path, **more) as answer:
        error = (await answer.json())["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return answer.status, error["code"], error["param"]


_JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "param"),
    [
        ("GET", "/v1/nothing", 404, "unknown_url", None),
        ("POST", "/responses", 404, "unknown_url", None),
        ("PUT", "/v1/responses", 405, "method_not_supported", None),
        ("GET", "/v1/responses", 405, "method_not_supported", None),
        ("GET", "/v1/responses/resp_x", 404, "response_not_found", "response_id"),
        ("DELETE", "/v1/responses/resp_x", 404, "response_not_found", "response_id"),
        ("POST", "/v1/responses/resp_x/cancel", 404, "response_not_found", "response_id"),
        ("GET", "/v1/responses/resp_x/input_items", 404, "response_not_found", "response_id"),
        ("GET", "/v1/responses/resp_x?stream=true", 404, "response_not_found", "response_id"),
        ("GET", "/v1/responses/resp_x?stream=perhaps", 400, "invalid_value", "stream"),
        ("GET", "/v1/responses/resp_x?stream=true&starting_after=x", 400, "invalid_type", "starting_after"),
        ("GET", "/v1/responses/resp_x?stream=true&starting_after=-1", 400, "invalid_value", "starting_after"),
        ("GET", "/v1/responses/resp_x/input_items?limit=0", 400, "invalid_value", "limit"),
        ("GET", "/v1/responses/resp_x/input_items?limit=101", 400, "invalid_value", "limit"),
        ("GET", "/v1/responses/resp_x/input_items?order=up", 400, "invalid_value", "order"),
        ("GET", "/v1/models/nobody", 404, "model_not_found", "model"),
        ("POST", "/v1/conversations", 400, "unsupported_parameter", "conversation"),
        ("POST", "/v1/responses", 415, "unsupported_content_type", None),
    ],
)
async def test_a_request_without_a_body(
    door: str, method: str, path: str, status: int, code: str, param: str | None
) -> None:
    async with base_of(door) as base:
        assert await refused(base, method, path) == (status, code, param)


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("/v1/responses", b"", "invalid_json", None),
        ("/v1/responses", b"{", "invalid_json", None),
        ("/v1/responses", b"[]", "invalid_json", None),
        ("/v1/responses", b'{"model":"\xff"}', "invalid_json", None),
        ("/v1/responses", b'{"type":"response.cancel"}', "invalid_value", "type"),
        ("/v1/responses/compact", b'{"input":"x"}', "missing_required_parameter", "model"),
        ("/v1/responses/compact", b'{"model":"nobody","input":"x"}', "model_not_found", "model"),
        ("/v1/responses/input_tokens", b'{"model":"nobody","input":"x"}', "model_not_found", "model"),
        (
            "/v1/responses/input_tokens",
            b'{"model":"stepped","input":"x","top_p":9}',
            "invalid_value",
            "top_p",
        ),
    ],
)
async def test_a_body_that_cannot_be_taken(door: str, path: str, body: bytes, code: str, param: str | None) -> None:
    async with base_of(door) as base:
        status, *rest = await refused(base, "POST", path, data=body, headers=_JSON)
        assert (rest, status) == ([code, param], 404 if code == "model_not_found" else 400)


async def test_bodies_in_other_forms(door: str) -> None:
    body = json.dumps({"model": "stepped", "input": "x"}).encode()
    async with base_of(door) as base:
        said = await refused(base, "POST", "/v1/responses", data=body, headers={"Content-Type": "text/plain"})
        assert said == (415, "unsupported_content_type", None)
        said = await refused(base, "POST", "/v1/responses", data=body, headers={**_JSON, "Content-Encoding": "br"})
        assert said == (415, "unsupported_content_type", None)
        said = await refused(base, "POST", "/v1/responses", data=body, headers={**_JSON, "Content-Encoding": "gzip"})
        assert said == (400, "invalid_request_error", None)


async def test_a_page_after_an_item_that_is_not_there(door: str) -> None:
    async with serving(http=True) as server, bridging(server) as stage:
        response = await stage.whole()
        base = stage.url.removesuffix("/v1") if door == "bridge" else f"http://127.0.0.1:{server.http_port}"
        path = f"/v1/responses/{response['id']}"
        said = await refused(base, "GET", f"{path}/input_items?after=msg_x")
        assert said == (404, "item_not_found", "after")
        # Neither in the background nor to be streamed.
        assert await refused(base, "POST", f"{path}/cancel") == (400, "invalid_request_error", None)
        assert await refused(base, "GET", f"{path}?stream=true") == (400, "invalid_request_error", None)
