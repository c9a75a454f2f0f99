"""A template under one head (instructions, tools, effort, date): whole conversations, and what new messages add.

Above: the template renderer. Below: the template and stand-ins.

What new messages add is found by rendering them behind a stand-in for the conversation so far, and taking away the
stand-in. That is right only where a template appends, and decides how to go on by no more than the shapes of the last
messages. So for every combination of shapes it is proved once, on stand-ins of several lengths and texts and under the
real head too, that rendering n + 1 messages begins with rendering n, and that the rest is the same whatever stands
before. Where it is not, the whole conversation has to be rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from turnwire.server.prompt.renderer import Head, RenderError
from turnwire.server.prompt.template.environment import ChatTemplate
from turnwire.server.prompt.template.marks import SpecialTokens
from turnwire.server.prompt.template.messages import ChatMessage, lead, system_message, tool_definitions
from turnwire.server.prompt.template.shapes import ASSISTANT, USER, Shape, context, histories, shape_of, stand_in

_MOST_PROOFS: Final = 4096
_SMALL_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
_TEXTS: Final = ("x", "y")
"""What stand-ins say. Where it matters which, the template looks further back than shapes can tell."""

_TEXT: Final = "\ufdd2"
"""What no template writes by itself."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a conversation ends, as far as a template may care."""

    behind: tuple[Shape, ...] = ()
    """The last messages; empty where it cannot be gone on from."""
    seen: frozenset[Shape] = frozenset()
    """The shapes of all messages so far."""

    def after(self, messages: Sequence[ChatMessage]) -> Ending:
        """Returns how it ends once some messages were added."""
        shapes = [shape_of(message) for message in messages]
        return Ending(context((*self.behind, *shapes)), self.seen.union(shapes))


class Dialect:
    """One template under one head. Safe to use from several threads: what they race for is the same twice."""

    def __init__(
        self,
        template: ChatTemplate,
        special: SpecialTokens,
        variables: Mapping[str, Any],
        head: Head,
        *,
        arguments_as_text: bool = False,
        border: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Takes what all heads have in common, and the head.

        Args:
            template: The template.
            special: The model's control tokens.
            variables: Its named tokens.
            head: The head.
            arguments_as_text: How arguments are given.
            border: Tells of two characters whether they part a text; None where only control tokens do.
        """
        self._template = template
        self._border = border
        self._special = special
        self._date = head.date
        self._arguments_as_text = arguments_as_text
        self._system = system_message(head.instructions, special.mark)
        tools = tool_definitions(head.tools, special.mark)
        self._variables = {**variables, **_reasoning(head.effort), "tools": tools or None}
        # What new messages add must not cost the tools again, so that it is rendered under a small head.
        self._small = {**self._variables, "tools": [_SMALL_TOOL] if tools else None}
        self._small_system: list[ChatMessage] = [{"role": "system", "content": "x"}] if self._system else []
        self._proofs: dict[tuple[Ending, tuple[Shape, ...]], bool] = {}
        self._bases: dict[tuple[Shape, ...], str] = {}
        self._openings: dict[Ending, str | None] = {}

    def whole(self, messages: Sequence[ChatMessage]) -> str:
        """Renders a whole conversation with the beginning of the model's answer.

        Raises:
            RenderError: The template refuses it.
        """
        return self._render([*self._system, *messages], self._variables, opening=True)

    def added(self, ending: Ending, messages: Sequence[ChatMessage]) -> str | None:
        """Returns what some messages add to a conversation that ends like this; None where that cannot be told."""
        if not ending.behind or not self._proved(ending, tuple(shape_of(message) for message in messages)):
            return None
        stand_ins = self._stand_ins(ending.behind)
        base = self._bases.get(ending.behind)
        if base is None:
            base = self._bases[ending.behind] = self._small_render(stand_ins)
        # The texts themselves decide whether they may be encoded apart, where no control token parts them.
        return self._rest(base, self._small_render([*stand_ins, *messages]))

    def opening(self, ending: Ending) -> str | None:
        """Returns the beginning of the model's answer to a conversation that ends like this; None where unclear."""
        if ending not in self._openings:
            if len(self._openings) > _MOST_PROOFS:
                self._openings.clear()
            self._openings[ending] = self._prove_opening(ending) if ending.behind else None
        return self._openings[ending]

    @cached_property
    def closing(self) -> str | None:
        """What follows the text of the model's message; None where the template gives it no end."""
        try:
            text = self._small_render([stand_in(USER), stand_in(ASSISTANT, _TEXT)])
        except RenderError:
            return None
        return text.rpartition(_TEXT)[2] or None

    def takes_arguments_as_text(self) -> bool:
        """Whether the template reads a call's arguments as JSON text only, rather than as an object."""
        call = Shape("assistant", content=False, calls=1)
        for as_text in (False, True):
            try:
                self._small_render([stand_in(USER), stand_in(call, arguments_as_text=as_text)])
            except RenderError:
                continue
            return as_text
        return False

    def _proved(self, ending: Ending, new: tuple[Shape, ...]) -> bool:
        known = self._proofs.get((ending, new))
        if known is None:
            if len(self._proofs) > _MOST_PROOFS:
                self._proofs.clear()
            try:
                known = self._prove(ending, new)
            except RenderError:
                known = False
            self._proofs[ending, new] = known
        return known

    def _prove(self, ending: Ending, new: tuple[Shape, ...]) -> bool:
        added: set[str] = set()
        for before, between in histories(ending.seen):
            first, *last = ending.behind
            # A loop of calls stands between a user's message and the model's last one.
            if between and not last:
                continue
            shapes = (*before, first, *between, *last)
            for variables, system in self._heads():
                for text in _TEXTS:
                    base = self._render([*system, *self._stand_ins(shapes, text)], variables)
                    longer = [*system, *self._stand_ins(shapes, text), *self._stand_ins(new)]
                    rest = self._rest(base, self._render(longer, variables))
                    if rest is None:
                        return False
                    added.add(rest)
        return len(added) == 1

    def _prove_opening(self, ending: Ending) -> str | None:
        added: set[str] = set()
        try:
            for before, _ in histories(ending.seen):
                for variables, system in self._heads():
                    messages = [*system, *self._stand_ins((*before, *ending.behind))]
                    base = self._render(messages, variables)
                    rest = self._rest(base, self._render(messages, variables, opening=True))
                    if rest is None:
                        return None
                    added.add(rest)
        except RenderError:
            return None
        return added.pop() if len(added) == 1 else None

    def _rest(self, base: str, text: str) -> str | None:
        """Returns what a text adds; None where it does not, or where the two encoded apart give other ids."""
        rest = text[len(base) :]
        return rest if text.startswith(base) and (not rest or self._apart(base, rest)) else None

    def _apart(self, base: str, rest: str) -> bool:
        """Whether two texts have the same ids apart as together."""
        if self._special.begins(rest) or self._special.ends(base):
            return True
        # Where a stand-in's own text comes last, nobody knows what stands there in its place.
        if self._border is None or not base or base[-1] in _TEXTS:
            return False
        return self._border(base[-1], rest[0])

    def _stand_ins(self, shapes: Sequence[Shape], text: str = _TEXTS[0]) -> list[ChatMessage]:
        return [stand_in(shape, text, arguments_as_text=self._arguments_as_text) for shape in shapes]

    def _heads(self) -> list[tuple[Mapping[str, Any], list[ChatMessage]]]:
        return [(self._small, self._small_system), (self._variables, self._system)]

    def _small_render(self, messages: Sequence[ChatMessage]) -> str:
        return self._render([*self._small_system, *messages], self._small)

    def _render(self, messages: list[ChatMessage], variables: Mapping[str, Any], *, opening: bool = False) -> str:
        shown = {**variables, "messages": lead(messages), "add_generation_prompt": opening}
        return self._template.render(shown, self._date)


def _reasoning(effort: str) -> dict[str, Any]:
    """Returns the variables by which templates are told how much to reason."""
    if not effort:
        return {}
    thinking = effort not in ("none", "minimal")
    return {"reasoning_effort": effort, "enable_thinking": thinking, "thinking": thinking}
