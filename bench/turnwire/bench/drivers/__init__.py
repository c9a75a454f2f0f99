"""Ways to play a rollout: one small file for each transport and shape, behind one protocol.

Above it: the runner, by `play` in a process of its own. Below it: aiohttp and grpc.aio, used directly. The clients are
lean: they read every event and keep what they need, but build no objects for an application, as a client library would.
All JSON is read and written by msgspec, the fastest way that Python has, so that the encoding is not put at a
disadvantage; protobuf by its C implementation.
"""
