"""Settings of the gRPC transport, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """What the server's HTTP/2 side is started with. Times are seconds."""

    max_message_bytes: int = 64 * 1024 * 1024
    """Largest message taken from the wire; twice the application's limit, so that what is too large for the application
    is refused by name and not by the transport."""
    keepalive_time: float = 30.0
    """Silence after which the server pings a client, to find dead peers."""
    keepalive_timeout: float = 10.0
    """Time for the answer to such a ping."""
    min_client_ping_interval: float = 5.0
    """Pings of clients may come this often. The default of five minutes kills clients that ping through a long think:
    a thinking model is an idle stream."""
    max_sessions: int = 20_000
    """Sessions at the same time."""
    max_sessions_per_principal: int = 10_000
    """Sessions of one key at the same time."""

    def channel_args(self) -> list[tuple[str, int]]:
        """Returns the options as gRPC core names them."""
        return [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", int(self.keepalive_time * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.keepalive_timeout * 1000)),
            # The one that gRPC 1.85 goes by; without it a dead peer is found after a minute.
            ("grpc.http2.ping_timeout_ms", int(self.keepalive_timeout * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", int(self.min_client_ping_interval * 1000)),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.so_reuseport", 0),
        ]
