"""Transcripts: what both sides of a session said and when, as JSON lines, without keys.

    {"turnwire_transcript": 1, "client": "0.1.0", "grpcio": "1.85.3", …}     the header
    {"t": 0.001, "client": {"request_id": "req_1", "create": {…}}}           a ConnectRequest
    {"t": 0.204, "server": {"first_event_id": 1, "events": […]}}             a ConnectResponse: a batch, as it came
    {"t": 1.310, "end": "OK"}                                                how the stream ended

Messages are in protobuf's JSON, with the field names of the schema. Above it: `turnwire events`. Below it: protobuf.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

from google.protobuf import descriptor_pool, json_format
from google.protobuf.message import Message

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import RequestError
from turnwire.v1.json import from_json
from turnwire.v1.responses_service_pb2 import ConnectResponse

FORMAT: Final = 1
REDACTED: Final = "[redacted]"

_SECRET_NAMES: Final = frozenset({"authorization", "api_key", "resume_token", "password", "secret"})
# Well-known shapes of keys: a prefix, then a long run without spaces.
_SECRET_SHAPES: Final = re.compile(
    r"\b(?:Bearer\s+|(?:sk|pk|rk|xai|gsk|ghp|gho|ghs|glpat|hf|xox[abp]|AKIA|AIza)[-_]?)[A-Za-z0-9._~+/-]{16,}=*"
)

_UNKNOWN_FIELD: Final = re.compile(r'.*Message type "([\w.]+)" has no field named "(\w+)" .*')


class TranscriptError(ValueError):
    """A file cannot be read as a transcript, or a line as an event; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was said."""

    seconds: float
    """Since the stream was opened."""
    message: ConnectRequest | ConnectResponse | str
    """A request, a batch, or how the stream ended."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that was said in a session."""

    header: Mapping[str, object] = field(default_factory=dict[str, object])
    entries: tuple[Entry, ...] = ()

    def requests(self) -> Iterator[tuple[int, Entry, ConnectRequest]]:
        """Yields what the client said, with the place among all entries."""
        for place, entry in enumerate(self.entries):
            if isinstance(entry.message, ConnectRequest):
                yield place, entry, entry.message


class Recorder:
    """Writes a transcript while the session goes on."""

    def __init__(
        self,
        file: IO[str],
        *,
        address: str,
        secrets: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Writes the header.

        Args:
            file: Where to write; not closed here.
            address: Where the session is.
            secrets: Texts that must not be written, wherever they occur.
            clock: Where time comes from.
        """
        self._file = file
        self._clock = clock
        self._started = clock()
        self.answered = False
        """Whether the server has said anything."""
        self._secrets = tuple(secret for secret in secrets if secret)
        header = {"turnwire_transcript": FORMAT, **_versions(), "address": address}
        self._write(header)

    def said(self, message: ConnectRequest | ConnectResponse) -> None:
        """Writes a request or a batch."""
        side = "client" if isinstance(message, ConnectRequest) else "server"
        self.answered = self.answered or side == "server"
        self._write({"t": self._seconds(), side: redact(to_dict(message), self._secrets)})

    def ended(self, how: str) -> None:
        """Writes how the stream ended."""
        self._write({"t": self._seconds(), "end": redact(how, self._secrets)})

    def _seconds(self) -> float:
        return round(self._clock() - self._started, 6)

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(compact(line) + "\n")
        # A transcript is for when things go wrong, so it must not be lost in a buffer.
        self._file.flush()


@contextlib.contextmanager
def recording(path: Path, *, address: str, secrets: Iterable[str]) -> Generator[Recorder, None, None]:
    """Records into a new file, which takes the place of `path` at the end if the server has said anything.

    Args:
        path: Where the transcript shall be. What is there stays there if there was no session.
        address: Where the session is.
        secrets: Texts that must not be written.

    Raises:
        TranscriptError: There can be no file.
    """
    path = path.resolve()
    try:
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, "not a file")
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        msg = f"{path}: cannot be written: {error.strerror}"
        raise TranscriptError(msg) from error
    file = os.fdopen(descriptor, "w", encoding="utf-8")
    recorder = Recorder(file, address=address, secrets=secrets)
    try:
        with file:
            yield recorder
    finally:
        if recorder.answered:
            os.replace(name, path)
        else:
            os.unlink(name)


def read_transcript(path: Path) -> Transcript:
    """Reads a transcript.

    Raises:
        TranscriptError: The file cannot be read, or is none.
    """
    lines = _lines(path)
    try:
        header = json.loads(lines[0]) if lines else None
    except ValueError:
        header = None
    if not isinstance(header, dict) or "turnwire_transcript" not in header:
        msg = f"{path}:1: not a transcript: record one with `turnwire events --record FILE`"
        raise TranscriptError(msg)
    known = cast("dict[str, object]", header)
    if known["turnwire_transcript"] != FORMAT:
        msg = f"{path}:1: a transcript of format {known['turnwire_transcript']}, this version reads format {FORMAT}"
        raise TranscriptError(msg)
    return Transcript(
        known, tuple(_entry(line, f"{path}:{number}") for number, line in enumerate(lines[1:], 2) if line)
    )


def read_requests(path: Path) -> list[ConnectRequest]:
    """Reads a file of events, one a line; see `parse_request`.

    Raises:
        TranscriptError: It cannot be read, or a line of it is none.
    """
    return [parse_request(line, f"{path}:{number}") for number, line in enumerate(_lines(path), 1) if line.strip()]


def parse_request(line: str | bytes, place: str) -> ConnectRequest:
    """Reads an event of the client's, in protobuf's JSON or, where it has a `type`, in the official one.

    Raises:
        TranscriptError: It is neither.
    """
    try:
        value: object = json.loads(line)
        if not isinstance(value, dict):
            msg = "expected a JSON object"
            raise ValueError(msg)
        if "type" in value:
            return from_json(ConnectRequest, line)
        return json_format.ParseDict(cast("dict[str, Any]", value), ConnectRequest())
    except RequestError as error:
        reason = error.error.message
    except json_format.ParseError as error:
        reason = _UNKNOWN_FIELD.sub(_with_fields, " ".join(str(error).split()))
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except ValueError as error:
        reason = str(error)
    msg = f"{place}: not an event: {reason}"
    raise TranscriptError(msg)


def _with_fields(found: re.Match[str]) -> str:
    """Names a message's fields as its schema does, where protobuf names them as its JSON may have them, too."""
    message, name = found.groups()
    fields = descriptor_pool.Default().FindMessageTypeByName(message).fields
    return f"{message.rpartition('.')[2]} has no field {name}; it has {', '.join(field.name for field in fields)}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        msg = f"{path}: cannot be read: {reason}"
        raise TranscriptError(msg) from error


def to_dict(message: Message) -> dict[str, Any]:
    """Returns a message in protobuf's JSON, with the field names of the schema."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def compact(value: object) -> str:
    """Returns JSON without needless spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def redact(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Returns a JSON value without what is or looks like a key."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        return _SECRET_SHAPES.sub(REDACTED, value)
    if isinstance(value, list):
        return [redact(each, secrets) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return {
            name: REDACTED if name.lower() in _SECRET_NAMES and each else redact(each, secrets)
            for name, each in known.items()
        }
    return value


def _entry(line: str, place: str) -> Entry:
    try:
        value = cast("dict[str, Any]", json.loads(line))
        seconds = float(value["t"])
        if "client" in value:
            return Entry(seconds, _parse(value["client"], ConnectRequest()))
        if "server" in value:
            return Entry(seconds, _parse(value["server"], ConnectResponse()))
        return Entry(seconds, str(value["end"]))
    except (ValueError, TypeError, KeyError, json_format.ParseError) as error:
        msg = f"{place}: not an entry of a transcript: {' '.join(str(error).split())}"
        raise TranscriptError(msg) from error


def _parse(value: Any, message: Any) -> Any:
    # Transcripts may come from a newer version; what is not known here cannot be sent from here either.
    return json_format.ParseDict(value, message, ignore_unknown_fields=True)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("turnwire", "grpcio", "protobuf"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions
