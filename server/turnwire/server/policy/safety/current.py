"""The rules in force, which may be replaced while responses are at work.

Above it: the core and the checks, which keep this one object. Below it: the screener. What chains remember of their
last words is text, not what rules made of it, so new rules go on from there and look at nothing again.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.server.policy.safety.screener import RuleOutput, RuleScreener
from turnwire.server.session.screens import Hit, Overlap, Screened, Tails
from turnwire.v1.item_pb2 import Item


class CurrentRules:
    """A screener that can be exchanged. Safe to use from several threads at once."""

    def __init__(self, rules: RuleScreener) -> None:
        """Takes the first rules."""
        self._rules = rules

    def replace(self, rules: RuleScreener) -> None:
        """Puts rules in force. Output that is being looked at is looked at by the earlier ones to its end."""
        self._rules = rules

    @property
    def version(self) -> str:
        """Tells these rules from others."""
        return self._rules.version

    def screen(self, item: Item) -> tuple[Screened, ...]:
        """Looks at an item of the input by itself."""
        return self._rules.screen(item)

    def screen_text(self, text: str) -> tuple[Screened, ...]:
        """Looks at what a hosted tool brought."""
        return self._rules.screen_text(text)

    def follow(self, overlap: Overlap, screened: Sequence[Screened]) -> tuple[Overlap, tuple[Hit, ...]]:
        """Goes on from an overlap by what was found in texts by themselves."""
        return self._rules.follow(overlap, screened)

    def output(self, tails: Tails) -> RuleOutput | None:
        """Begins to look at output; None where no rule is for it."""
        return self._rules.output(tails)
