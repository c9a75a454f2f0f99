"""The rules of a session: which responses it remembers, how much it may do, and how it says that it may not.

Above it: the context, and the parts that decide by it. Below it: retention and limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from turnwire.server.session.budget import Budget
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.retention import LatestPerLane, Retention, Tree
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error, reject
from turnwire.v1.session_pb2 import SessionRules

MAX_AGE: Final = "max_age"
"""Why a session ends that has lived as long as it may, as `go_away` tells it."""


class Rules:
    """Those of gRPC sessions: every response stays addressable, and nothing but the server's own limits counts."""

    name: SessionRules.ValueType = SessionRules.SESSION_RULES_TREE
    lane_param: str = "lane"
    """How errors name the parameter that names the lane."""

    def limits(self, configured: SessionLimits) -> SessionLimits:
        """Returns the limits in force, from those the server has."""
        return configured

    def retention(self, limits: SessionLimits, in_use: Callable[[str], bool], budget: Budget | None) -> Retention:
        """Returns the memory of responses; `in_use` tells ids that must stay, `budget` is all sessions'."""
        return Tree(limits.max_responses, limits.max_state_bytes, in_use, budget)

    def check_lane(self, request: ConnectRequest) -> None:
        """Checks what a request says of its lane beyond the name's form.

        Raises:
            RequestError: `invalid_stream_id`.
        """

    def invalid_lane(self) -> RequestError:
        """Returns the refusal of a name that no lane can have."""
        message = (
            "The lane must be a non-empty string with at most 256 characters and may only contain letters, numbers,"
            " underscores, hyphens, and periods."
        )
        return reject("invalid_stream_id", message, param=self.lane_param)

    def too_many_lanes(self, limit: int) -> RequestError:
        """Returns the refusal of one more named lane."""
        message = (
            f"This session has reached its maximum number of distinct lanes ({limit}). Reuse an existing lane or open"
            " another session."
        )
        return reject("lane_limit_reached", message, param=self.lane_param, limit=str(limit))

    def closing(self, reason: str, limits: SessionLimits) -> RequestError:
        """Returns the refusal of a request that comes after the session's end was announced.

        Args:
            reason: That of `go_away`; empty where the client ended the session itself.
            limits: Those in force.
        """
        return reject("session_closing", "The session takes no new requests. Open another one.")

    def cut_off(self, reason: str, limits: SessionLimits) -> Error:
        """Returns why responses fail that are still at work when the time granted by `go_away` is over."""
        message = "The server ended the session before the response did. Continue on another connection."
        return make_error("server_shutting_down", message)


class WebSocketRules(Rules):
    """Those of the public API's WebSocket mode, with its codes and its words.

    A server that is configured to less allows less. What ends a connection for another reason than its age is
    `server_shutting_down`, which clients answer by connecting again.
    """

    name = SessionRules.SESSION_RULES_WEBSOCKET
    lane_param = "stream_id"

    def limits(self, configured: SessionLimits) -> SessionLimits:
        """Returns the limits in force, from those the server has."""
        lanes = min(configured.max_lanes, configured.websocket_lanes)
        return replace(
            configured,
            max_lanes=lanes,
            max_in_flight=min(configured.max_in_flight, configured.websocket_in_flight),
            max_held=min(configured.max_held, configured.websocket_in_flight),
            # One for each lane, the one without a name included.
            max_responses=lanes + 1,
            max_age=min(configured.max_age, configured.websocket_max_age),
        )

    def retention(self, limits: SessionLimits, in_use: Callable[[str], bool], budget: Budget | None) -> Retention:
        """Returns the memory of responses; `in_use` tells ids that must stay, `budget` is all sessions'."""
        return LatestPerLane(limits.max_state_bytes, in_use, budget)

    def check_lane(self, request: ConnectRequest) -> None:
        """Refuses an empty name: the default lane is asked for by naming none.

        Raises:
            RequestError: `invalid_stream_id`.
        """
        if request.HasField("lane") and not request.lane:
            raise self.invalid_lane()

    def invalid_lane(self) -> RequestError:
        """Returns the refusal of a name that no lane can have."""
        message = (
            "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters,"
            " numbers, underscores, hyphens, and periods."
        )
        return reject("invalid_stream_id", message, param=self.lane_param)

    def too_many_lanes(self, limit: int) -> RequestError:
        """Returns the refusal of one more named lane."""
        message = (
            f"This WebSocket connection has reached its maximum number of distinct stream IDs ({limit}). Reuse an"
            " existing stream_id or open a new WebSocket connection."
        )
        return reject("websocket_stream_limit_reached", message, param=self.lane_param, limit=str(limit))

    def closing(self, reason: str, limits: SessionLimits) -> RequestError:
        """Returns the refusal of a request that comes after the session's end was announced."""
        if not reason:
            return super().closing(reason, limits)
        if reason == MAX_AGE:
            return RequestError(connection_limit(limits.max_age))
        message = "The server ends this connection. Create a new websocket connection to continue."
        return reject("server_shutting_down", message)

    def cut_off(self, reason: str, limits: SessionLimits) -> Error:
        """Returns why responses fail that are still at work when the time granted by `go_away` is over."""
        return connection_limit(limits.max_age) if reason == MAX_AGE else super().cut_off(reason, limits)


def connection_limit(max_age: float) -> Error:
    """Returns the error of a connection that is as old as it may be, `max_age` in seconds."""
    message = (
        f"Responses websocket connection limit reached ({max_age / 60:g} minutes). Create a new websocket connection to"
        " continue."
    )
    return make_error("websocket_connection_limit_reached", message)


TREE: Final = Rules()
"""What holds unless a client asks otherwise."""

_RULES: Final[dict[SessionRules.ValueType, Rules]] = {
    SessionRules.SESSION_RULES_UNSPECIFIED: TREE,
    SessionRules.SESSION_RULES_TREE: TREE,
    SessionRules.SESSION_RULES_WEBSOCKET: WebSocketRules(),
}


def find_rules(name: SessionRules.ValueType) -> Rules:
    """Returns the rules of a name.

    Raises:
        RequestError: `invalid_value`: this version does not know them.
    """
    rules = _RULES.get(name)
    if rules is None:
        raise reject("invalid_value", f"Invalid value for 'open.rules': {name}.", param="open.rules", value=str(name))
    return rules
