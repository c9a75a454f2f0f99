"""Where a command finds its server: the flags that say so, and what is opened there.

Above it: the commands. Below it: the client library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from turnwire.client import ChannelOptions, Client, Connect, connect
from turnwire.client._dial import check_address, open_transport, uses_tls
from turnwire.client._transport import Transport, bearer
from turnwire.client.client import DEFAULT_ADDRESS
from turnwire.client.commands.prompts import checked_text


@dataclass(frozen=True, slots=True)
class Target:
    """A server, as the flags name it."""

    address: str
    api_key: str | None = None
    options: ChannelOptions = field(default_factory=ChannelOptions)

    def connect(self) -> Connect:
        """Opens a session there."""
        return connect(self.address, api_key=self.api_key, options=self.options)

    def client(self) -> Client:
        """Returns the one-shot methods there."""
        return Client(self.address, api_key=self.api_key, options=self.options)

    def transport(self) -> Transport:
        """Opens a stream there, without a session on it."""
        return open_transport(self.address, bearer(self.api_key), self.options)


def target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the flags that name a server, and hands it the `Target` they stand for as `where`.

    Wrong combinations and files that cannot be used are wrong usage.
    """

    @functools.wraps(command)
    def with_target(
        *args: Any,
        address: str,
        api_key: str | None,
        api_key_file: Path | None,
        ca_file: Path | None,
        client_cert: Path | None,
        client_key: Path | None,
        **kwargs: Any,
    ) -> None:
        where = Target(address, _key(api_key, api_key_file), _channel(address, ca_file, client_cert, client_key))
        command(*args, where=where, **kwargs)

    for option in reversed(_OPTIONS):
        with_target = option(with_target)
    return with_target


def was_given(flag: str) -> bool:
    """Tells whether the command line has a flag, rather than a variable, which may stay set for other commands."""
    return click.get_current_context().get_parameter_source(flag) is ParameterSource.COMMANDLINE


def _checked_address(context: click.Context, parameter: click.Parameter, value: str) -> str:
    checked_text(context, parameter, value)
    try:
        check_address(value)
    except (ValueError, ImportError) as error:
        raise click.BadParameter(str(error)) from error
    return value


_FILE: Final = click.Path(path_type=Path)

_OPTIONS: Final = (
    click.option(
        "--address",
        metavar="ADDRESS",
        default=DEFAULT_ADDRESS,
        envvar="TURNWIRE_ADDRESS",
        show_default=True,
        show_envvar=True,
        callback=_checked_address,
        help="HOST:PORT, grpcs://HOST:PORT for TLS, unix:PATH, or ws:// and wss:// for WebSocket.",
    ),
    click.option(
        "--api-key", metavar="KEY", envvar="TURNWIRE_API_KEY", show_envvar=True, help="Key the server asks for."
    ),
    click.option(
        "--api-key-file",
        type=_FILE,
        help="File with the key, or a server's key file, whose first counts. Others may see --api-key.",
    ),
    click.option(
        "--ca-file",
        type=_FILE,
        envvar="TURNWIRE_CA_FILE",
        show_envvar=True,
        help="Authorities to trust with grpcs: and wss:, PEM.  [those of the system]",
    ),
    click.option("--client-cert", type=_FILE, help="Certificate to show to a server that asks for one, PEM."),
    click.option("--client-key", type=_FILE, help="Private key of that certificate, PEM."),
)


def _key(api_key: str | None, file: Path | None) -> str | None:
    if file is not None:
        if was_given("api_key"):
            msg = "--api-key and --api-key-file exclude each other"
            raise click.UsageError(msg)
        api_key = _first_key(file)
    try:
        bearer(api_key)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return api_key or None


def _first_key(file: Path) -> str:
    try:
        text = _read(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        # Not chained: the cause quotes the bytes, which may be a key.
        msg = f"{file}: cannot be read: not UTF-8 text"
        raise click.UsageError(msg) from None
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            # A server's file says whose each key is, and no key of its has a colon.
            return line.rpartition(":")[2].strip()
    msg = f"{file}: there is no key in it"
    raise click.UsageError(msg)


def _channel(address: str, ca_file: Path | None, client_cert: Path | None, client_key: Path | None) -> ChannelOptions:
    if (ca_file or client_cert or client_key) and not uses_tls(address):
        flags = "--ca-file, --client-cert, --client-key"
        msg = f"{address} does without TLS: give grpcs://HOST:PORT or wss://HOST:PORT, or leave out {flags}"
        raise click.UsageError(msg)
    if (client_cert is None) != (client_key is None):
        msg = "--client-cert and --client-key need each other"
        raise click.UsageError(msg)
    return ChannelOptions(
        root_certificates=read_pem(ca_file),
        client_certificate=read_pem(client_cert),
        client_key=read_pem(client_key),
    )


def read_pem(file: Path | None) -> bytes | None:
    """Returns what a PEM file holds; None for no file.

    Raises:
        click.UsageError: It cannot be read, or is not PEM.
    """
    if file is None:
        return None
    pem = _read(file)
    if b"-----BEGIN " not in pem:
        msg = f"{file}: not PEM"
        raise click.UsageError(msg)
    return pem


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"{file}: cannot be read: {error.strerror}"
        raise click.UsageError(msg) from error
