"""Runs a model's chat template: sandboxed Jinja with the helpers that templates expect.

Above: the template renderer. Below: Jinja.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from turnwire.server.prompt.renderer import RenderError
from turnwire.server.prompt.template.marks import MARK

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser
    import jinja2.sandbox
except ModuleNotFoundError as error:
    message = "chat templates need more packages: install turnwire[template]"
    raise ModuleNotFoundError(message) from error


_ESCAPED_MARK: Final = json.dumps(MARK)[1:-1]


class _Generation(jinja2.ext.Extension):
    """Lets `{% generation %}`, by which trainers find the model's own text, stand for its content."""

    tags = {"generation"}  # noqa: RUF012  # As Jinja declares it.

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template. Rendering is pure: the date is an argument."""

    def __init__(self, source: str) -> None:
        """Takes the template's text.

        Raises:
            ValueError: It is no valid template.
        """
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            msg = f"the chat template is not valid: {error}"
            raise ValueError(msg) from error

    def render(self, variables: Mapping[str, Any], date: str) -> str:
        """Renders the template.

        Raises:
            RenderError: The template refuses the conversation, or fails on it.
        """
        day = datetime.datetime.fromisoformat(date) if date else datetime.datetime(2025, 1, 1)

        def strftime_now(form: str) -> str:
            return day.strftime(form)

        try:
            return self._template.render(variables, strftime_now=strftime_now, raise_exception=_raise_exception)
        except RenderError:
            raise
        except Exception as error:  # Whatever an operator's template does wrong is no fault of the server.
            msg = f"The model's chat template cannot say this conversation: {error}"
            raise RenderError(msg) from error


def _raise_exception(text: str) -> NoReturn:
    msg = f"The model's chat template refuses this conversation: {text}"
    raise RenderError(msg)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Writes JSON as templates expect it: nothing escaped for HTML, unlike Jinja's own filter."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return text.replace(_ESCAPED_MARK, MARK) if ensure_ascii else text
