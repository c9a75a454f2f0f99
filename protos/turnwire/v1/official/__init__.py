"""The official shapes over turnwire's protocol: events, HTTP and WebSocket as the public API has them. No I/O.

Above it: the server's JSON doors, the bridge, and the transport of the client library for official SDKs; all three
serve the same shapes from whatever stands behind the port `backend`: the core in the same process, or a server reached
over gRPC. Below it: the messages, the JSON codec and the error table. Coroutines here await only the port.
"""
