"""The public JSON shapes of turnwire.v1 messages, both ways, derived from the options in the schema.

Above: the JSON doors, the bridge, stores and tests. Below: the generated messages and the error table.

What the codec promises, for every message with a public form:

- Message to JSON to message is exact, but for hidden fields. In filled output, fields with a `json_default` come back
  set to it.
- JSON to message to JSON is equal as parsed JSON, but for four things that mean the same to the schema: null and
  absent; `[]` or `{}` and absent (not where the type is a `json_list`); the default of a plain field and absent; the
  constant member, which is always written.
- JSON text fields, opaque objects and the values of unknown keys are kept byte for byte. They are trusted here: what
  arrives as protobuf is checked by policy before it may get this far. They may hold line breaks between tokens, which
  a transport that frames by lines has to replace by spaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from turnwire.v1.json.decode import decoder_of
from turnwire.v1.json.encode import encoder_of

__all__ = ["decoder", "encoder", "from_json", "to_json"]

M = TypeVar("M", bound=Message)


def to_json(message: Message, *, fill: bool = False) -> bytes:
    """Writes a message as public JSON.

    Args:
        message: Any message with a public form.
        fill: Whether to write all that the public shape always has: plain fields at their default, and the nulls,
            empties and defaults that the schema asks for. A server MUST emit this form. Without it only what is set is
            written.

    Returns:
        UTF-8 text of one JSON value.

    Raises:
        ValueError: The message cannot be said in JSON: a number that is not finite, an event without public form, or
            JSON text that is none.
    """
    return encoder_of(message.DESCRIPTOR, fill)(message)


def from_json(message_type: type[M], data: bytes | str | memoryview) -> M:
    """Reads public JSON.

    Args:
        message_type: The message to read.
        data: UTF-8 text of one JSON value. Of repeated keys the last one counts.

    Raises:
        turnwire.v1.errors.RequestError: The text is no JSON (`invalid_json`), or a value in it cannot be taken
            (`invalid_type`, `invalid_value`, `missing_required_parameter`), with the path to it as `param`. Nothing
            else, whatever the data.
    """
    return decoder_of(message_type)(data)


def encoder(message_type: type[M], *, fill: bool = False) -> Callable[[M], bytes]:
    """Returns `to_json` of one message type, compiled, for hot paths; asking early moves the cost of compiling."""
    return encoder_of(message_type.DESCRIPTOR, fill)


def decoder(message_type: type[M]) -> Callable[[bytes | str | memoryview], M]:
    """Returns `from_json` of one message type, compiled, for hot paths."""
    return decoder_of(message_type)
