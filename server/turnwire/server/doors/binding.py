"""Says why an address cannot be bound, before a server tries: gRPC names neither the cause nor the remedy."""

from __future__ import annotations

import errno
import os
import socket
import stat
from typing import Final

from turnwire.server.address import Address

_WHY: Final = {
    errno.EADDRINUSE: "another server is using it",
    errno.EADDRNOTAVAIL: "this machine does not have it",
    errno.EACCES: "this user may not bind it",
    errno.ENOENT: "its folder does not exist",
    errno.ENOTDIR: "its folder is not a folder",
}


class CannotBind(Exception):
    """Raised with the reason why an address cannot be bound."""


def prepare(address: Address) -> None:
    """Checks that an address can be bound, and removes what a server that is gone left of a Unix socket.

    Raises:
        CannotBind: It cannot.
    """
    if address.path:
        _prepare_socket(address.path)
    else:
        _try_tcp(address.host, address.port)


def _try_tcp(host: str, port: int) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        msg = "its name is not known"
        raise CannotBind(msg) from error
    family, kind, protocol, _, where = found[0]
    with socket.socket(family, kind, protocol) as probe:
        # As gRPC does, so that a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            raise CannotBind(_reason(error)) from error


def _prepare_socket(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise CannotBind(_WHY[errno.ENOENT]) from None
        return
    except OSError as error:
        raise CannotBind(_reason(error)) from error
    if not stat.S_ISSOCK(mode):
        msg = "there is a file that is not a socket"
        raise CannotBind(msg)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            # Nobody listens: its server is gone and left the file behind.
            os.unlink(path)
            return
    raise CannotBind(_WHY[errno.EADDRINUSE])


def _reason(error: OSError) -> str:
    return _WHY.get(error.errno or 0, os.strerror(error.errno) if error.errno else str(error))
