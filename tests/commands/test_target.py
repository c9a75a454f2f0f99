"""How commands are told where their server is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import click
import grpc
import pytest
import trustme
from click.testing import Result

from turnwire.client import ConnectError
from turnwire.client.commands.target import Target, target_options
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.testing import make_services

Invoke = Callable[..., Result]


@pytest.fixture
def found(invoke: Invoke) -> Callable[..., Target]:
    """What flags stand for."""

    def find(*arguments: str) -> Target:
        targets: list[Target] = []

        @click.command()
        @target_options
        def command(where: Target) -> None:
            targets.append(where)

        result = invoke(command, *arguments)
        if result.exit_code:
            raise click.UsageError(result.stderr)
        return targets[0]

    return find


@pytest.mark.parametrize(
    "text",
    [
        "secret-key-1\n",
        "\n# mine\n  secret-key-1  \nanother\n",
        "\N{BOM}secret-key-1",
        "# of the server\nalice:secret-key-1\nbob: secret-key-2\n",
    ],
)
def test_a_key_file_is_one_key_or_that_of_a_server(text: str, found: Callable[..., Target], tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    assert found("--api-key-file", str(file)).api_key == "secret-key-1"


def test_a_key_file_wins_over_the_environment(
    found: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWIRE_API_KEY", "of-another-server")
    assert found().api_key == "of-another-server"
    file = tmp_path / "key"
    file.write_text("secret-key-1")
    assert found("--api-key-file", str(file)).api_key == "secret-key-1"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--api-key", "a", "--api-key-file", "FILE"], "--api-key and --api-key-file exclude each other"),
        (["--api-key", "a b\nc"], "visible ASCII characters without spaces"),
        (["--api-key", "ключ"], "visible ASCII characters without spaces"),
        (["--api-key-file", "no-such-file"], "no-such-file: cannot be read"),
        (["--api-key-file", "FILE"], "there is no key in it"),
        (["--ca-file", "FILE"], "localhost:50051 does without TLS"),
        (["--address", "grpcs://localhost", "--ca-file", "no-such-file"], "no-such-file: cannot be read"),
        (["--address", "grpcs://localhost", "--ca-file", "FILE"], "not PEM"),
        (["--address", "grpcs://localhost", "--client-key", "FILE"], "need each other"),
        (["--address", "\udcff"], "not UTF-8 text"),
    ],
)
def test_flags_that_name_no_server_are_wrong_usage(
    arguments: list[str], complaint: str, found: Callable[..., Target], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("\n# nothing\n")
    with pytest.raises(click.UsageError, match=complaint) as raised:
        found(*(str(file) if one == "FILE" else one for one in arguments))
    assert "ключ" not in str(raised.value)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_address(authority: trustme.CA) -> AsyncIterator[str]:
    """A server that shows a certificate of the authority's, and asks for one."""
    certificate = authority.issue_cert("localhost")
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    server = GrpcServer(make_services([StepEngine()]))
    credentials = grpc.ssl_server_credentials([pair], authority.cert_pem.bytes(), require_client_auth=True)
    port = server.listen("127.0.0.1:0", credentials)
    await server.start()
    yield f"grpcs://localhost:{port}"
    await server.stop(0)


async def test_a_private_authority_and_a_client_certificate_are_shown(
    authority: trustme.CA, tls_address: str, found: Callable[..., Target], tmp_path: Path
) -> None:
    client = authority.issue_cert("someone@example.org")
    authority.cert_pem.write_to_path(tmp_path / "ca")
    client.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    client.private_key_pem.write_to_path(tmp_path / "key")
    flags = ["--ca-file", f"{tmp_path}/ca", "--client-cert", f"{tmp_path}/cert", "--client-key", f"{tmp_path}/key"]
    async with found("--address", tls_address, *flags).connect() as session:
        assert session.id


async def test_a_server_that_is_not_trusted_is_said_with_what_to_do(
    tls_address: str, found: Callable[..., Target]
) -> None:
    with pytest.raises(ConnectError, match=r"no authority that is trusted here has signed its certificate.*--ca-file"):
        await found("--address", tls_address).connect()
