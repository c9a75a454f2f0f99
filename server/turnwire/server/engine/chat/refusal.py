"""What an upstream cannot be asked for: raised where a request is written, answered with the pass's failure."""

from __future__ import annotations

from turnwire.server.session.chunks import EngineFailure


class Refusal(Exception):
    """Carries the failure of a pass whose request cannot be written."""

    def __init__(self, code: str, message: str) -> None:
        """Takes a code of the error table and a sentence for people."""
        super().__init__(message)
        self.failure = EngineFailure(code, message)
