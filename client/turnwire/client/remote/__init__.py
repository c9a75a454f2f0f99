"""A server elsewhere, as the port behind the official shapes: for the bridge, and for official SDKs over gRPC.

Above it: `turnwire.v1.official.http` and the WebSocket doors, which are given a `RemoteBackend`. Below it: the client
library's connections and one-shot methods.
"""

from turnwire.client.remote.backend import RemoteBackend
from turnwire.client.remote.failures import UnreachableError
from turnwire.client.remote.options import RemoteOptions

__all__ = ["RemoteBackend", "RemoteOptions", "UnreachableError"]
