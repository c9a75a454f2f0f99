"""What a repetition is measured on: a server, a network before it, a bridge; each in a process of its own.

Above it: the runner. Below it: `doors_processes`, and the command lines of the server and of the proxy.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from turnwire.bench.doors_processes import Process, running
from turnwire.bench.drivers.records import Job
from turnwire.bench.scenario.values import Network, Scenario

_CONFIG: Final = """\
max_kept_bytes = "16GiB"

[known]
max_bytes = "8GiB"

[limits]
max_lanes = 65536
max_in_flight = 65536
max_held = 65536
max_queued = 65536
max_responses = 65536
max_state_bytes = "8GiB"
websocket_in_flight = 65536
websocket_lanes = 65536
"""
"""What the server allows beyond its defaults, so that the largest fleet fits with room for a lane that warms up (held,
where tools are called, to the end of the run), and so that all lanes fit on one WebSocket. The drivers that stand for
the public API keep to its limits by themselves."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Running processes."""

    server: Process
    proxy: Process
    bridge: Process | None
    ca: str
    """File of the certificate to trust, PEM; empty for plaintext."""

    def job(self, driver: str, scenario: Scenario, seed: int) -> Job:
        """Returns what a driver's process is told."""
        processes = {"server": self.server.pid, "proxy": self.proxy.pid}
        if self.bridge is not None:
            processes["bridge"] = self.bridge.pid
        at = self.proxy.addresses
        bridge = "" if self.bridge is None else self.bridge.addresses["bridge"]
        http = f"{'https' if self.ca else 'http'}://{at['http']}"
        return Job(driver, scenario, seed, at["grpc"], http, bridge, at["stats"], self.ca, processes)

    def dead(self) -> str:
        """Names the processes that have ended, though they should not; empty where there are none."""
        mine = {"server": self.server, "proxy": self.proxy, "bridge": self.bridge}
        return ", ".join(name for name, process in mine.items() if process is not None and not alive(process.pid))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not (Linux)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1][0]
    except OSError:
        return False
    return state not in "ZX"


@contextmanager
def standing(script: str, network: Network, *, bridge: bool, flags: Sequence[str] = ()) -> Generator[Stand, None, None]:
    """Runs everything for the length of the block.

    Args:
        script: What the scripted engine plays, as TOML.
        network: What lies between.
        bridge: Whether a bridge is needed; it stands at the client's side of the network.
        flags: More flags for `turnwire serve`.

    Raises:
        RuntimeError: Something did not start; its own words are in the message.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-bench-")))
        path = folder / "scenario.toml"
        path.write_text(script, encoding="utf-8")
        config = folder / "server.toml"
        config.write_text(_CONFIG, encoding="utf-8")
        listen = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "off", "--log-level", "error")
        secure: tuple[str, ...] = ()
        ca = ""
        if network.tls:
            ca, key = certificate(folder)
            secure = ("--tls-cert", ca, "--tls-key", key)
        serve = (
            sys.executable,
            "-m",
            "turnwire.client.cli",
            "serve",
            "--config",
            str(config),
            *listen,
            "--scenario",
            str(path),
            *secure,
            *flags,
        )
        server = stack.enter_context(running(serve, ("grpc", "http")))
        proxy = stack.enter_context(running(_proxy(server, network), ("grpc", "http", "stats")))
        beside = stack.enter_context(running(_bridge(proxy, ca), ("bridge",))) if bridge else None
        yield Stand(server, proxy, beside, ca)


def certificate(folder: Path) -> tuple[str, str]:
    """Makes a certificate for this machine, valid for a day; returns the files of it and of its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "turnwire benchmark")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(cert_file), str(key_file)


def _bridge(server: Process, ca: str) -> list[str]:
    to = f"{'grpcs' if ca else 'grpc'}://{server.addresses['grpc']}"
    command = [sys.executable, "-m", "turnwire.client.cli", "bridge", "--listen", "127.0.0.1:0", "--to", to]
    return [*command, "--fallback", "off", "--log-level", "error", *(("--ca-file", ca) if ca else ())]


def _proxy(server: Process, network: Network) -> list[str]:
    targets = [f"grpc={server.addresses['grpc']}", f"http={server.addresses['http'].partition('://')[2]}"]
    command = [sys.executable, "-m", "turnwire.bench.network.proxy", *targets]
    command += ["--rtt-ms", f"{network.rtt * 1000:g}", "--bandwidth-mbit", f"{network.bandwidth / 1e6:g}"]
    return [*command, "--slow-start"] if network.slow_start else command
