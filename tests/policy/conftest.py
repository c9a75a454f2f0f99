"""A preparer without engine or clock, and two ways to give it a request: one that must pass and one that must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from turnwire.server.policy.prepare import Preparer
from turnwire.server.session.calls import CallKey
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.toolsets import ToolSets
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import ToolSet

LIMITS = SessionLimits(max_items=50, max_tools=20)
NO_CALLS: frozenset[CallKey] = frozenset()


def resolve(name: str) -> str:
    return {"echo": "echo-2026", "echo-2026": "echo-2026"}[name]


def words(text: str) -> int:
    return len(text.split())


def request_of(
    items: Sequence[Any], tools: Sequence[Any], open_calls: frozenset[CallKey], settings: dict[str, Any]
) -> Prepare:
    fields: dict[str, Any] = {"model": "echo", **settings}
    return Prepare(
        handle=1,
        items=[Item(**item) for item in items],
        settings=ResponseCreate(**fields),
        tools=ToolSets().intern(ToolSet(tools=tools)),
        open_calls=open_calls,
        size=0,
    )


class Prepares(Protocol):
    def __call__(
        self,
        *,
        items: Sequence[Any] = (),
        tools: Sequence[Any] = (),
        open_calls: frozenset[CallKey] = NO_CALLS,
        **settings: Any,
    ) -> Prepared: ...


class Refuses(Protocol):
    def __call__(
        self,
        *,
        items: Sequence[Any] = (),
        tools: Sequence[Any] = (),
        open_calls: frozenset[CallKey] = NO_CALLS,
        **settings: Any,
    ) -> Error: ...


@pytest.fixture(scope="session")
def preparer() -> Preparer:
    """A preparer that serves the model `echo` and counts words."""
    return Preparer(resolve, LIMITS, count=words)


@pytest.fixture(scope="session")
def prepare(preparer: Preparer) -> Prepares:
    """Prepares a request given as constructor arguments of its messages."""

    def prepared(
        *,
        items: Sequence[Any] = (),
        tools: Sequence[Any] = (),
        open_calls: frozenset[CallKey] = NO_CALLS,
        **settings: Any,
    ) -> Prepared:
        return preparer.prepare(request_of(items, tools, open_calls, settings))

    return prepared


@pytest.fixture(scope="session")
def refuse(preparer: Preparer) -> Refuses:
    """Prepares a request that must be refused, and returns the error."""

    def refused(
        *,
        items: Sequence[Any] = (),
        tools: Sequence[Any] = (),
        open_calls: frozenset[CallKey] = NO_CALLS,
        **settings: Any,
    ) -> Error:
        with pytest.raises(RequestError) as caught:
            preparer.prepare(request_of(items, tools, open_calls, settings))
        return caught.value.error

    return refused


@pytest.fixture(scope="session")
def refuse_append(preparer: Preparer) -> Any:
    """Prepares an append that must be refused, and returns the error."""

    def refused(*items: Any) -> Error:
        with pytest.raises(RequestError) as caught:
            preparer.prepare_append([Item(**item) for item in items])
        return caught.value.error

    return refused
