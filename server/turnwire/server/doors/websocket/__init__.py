"""The WebSocket door: the public API's WebSocket mode, and `turnwire.v1`, our own messages as binary frames.

Above it: the HTTP host, which mounts `door`. Below it: the port to what serves responses. `official` and `native` are
pure: what arrives and what is sent, without a socket; `connection` and `door` are all that knows aiohttp.
"""
