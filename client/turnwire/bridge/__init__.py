"""`turnwire bridge`: the official HTTP and WebSocket shapes on this machine, from a server that is reached over gRPC.

Above it: the command line, which finds it by its entry point; no other package imports it. Below it: the server's JSON
doors, and the client library's `RemoteBackend`, joined by the port between them. It is the one package that knows both
sides, and has no shapes of its own.

    clients --http, ws--> doors (the server's) -> BridgeBackend -> Routes -> RemoteBackend --grpc, else ws--> server
"""
