"""A model's tokenizer: cuts what a template rendered at the control tokens, and encodes what lies between.

Above: the template renderer. Below: Hugging Face's `tokenizers`, once without the control tokens, so that no text can
become one.
"""

from __future__ import annotations

import hashlib
import importlib
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from turnwire.server.prompt.renderer import RenderError
from turnwire.server.prompt.segments import TYPECODE
from turnwire.server.prompt.template.marks import SpecialTokens

try:
    _library: Any = importlib.import_module("tokenizers")  # Its stubs name no types.
except ModuleNotFoundError as error:
    message = "chat templates need more packages: install turnwire[template]"
    raise ModuleNotFoundError(message) from error

_GUARD: Final = "\ufdd1guard\ufdd1"
"""Stands before a run, so that the tokenizer does not take it for the beginning of a text."""

_CACHED_RUN: Final = 256
_CACHED_IDS: Final = 4_000_000


class TemplateTokenizer:
    """Encodes what a template rendered."""

    def __init__(self, data: bytes, template: str) -> None:
        """Takes a `tokenizer.json` and the template that goes with it.

        Raises:
            ValueError: The file is no tokenizer, or not one that can be cut at its special tokens.
        """
        try:
            config = cast("dict[str, Any]", msgspec.json.decode(data))
            added = cast("list[dict[str, Any]]", config.get("added_tokens") or [])
            config["post_processor"] = config["truncation"] = config["padding"] = None
            self._whole: Any = _library.Tokenizer.from_str(msgspec.json.encode(config).decode())
            control = [token for token in added if _controls(token, template)]
            config["added_tokens"] = [token for token in added if not _controls(token, template)]
            self._plain: Any = _library.Tokenizer.from_str(msgspec.json.encode(config).decode())
        except Exception as error:  # The library raises plain exceptions.
            msg = f"tokenizer.json cannot be read: {error}"
            raise ValueError(msg) from error
        # Without the control tokens, the library numbers the others anew.
        self._renumbered: dict[int, int] = {
            found: token["id"]
            for token in added
            if not _controls(token, template) and (found := self._plain.token_to_id(token["content"])) != token["id"]
        }
        self._plain.add_special_tokens([_library.AddedToken(_GUARD, normalized=False)])
        self.special = SpecialTokens(
            {token["content"]: token["id"] for token in control},
            {token["content"]: (bool(token.get("lstrip")), bool(token.get("rstrip"))) for token in control},
        )
        self._control_ids = frozenset(self.special.ids.values())
        self.hash = hashlib.sha256(data).hexdigest()
        self._runs: OrderedDict[bytes, array[int]] = OrderedDict()
        self._cached = 0
        self._check()

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token by its name; None for no token."""
        found: int | None = self._whole.token_to_id(token)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, control tokens included."""
        text: str = self._whole.decode(list(ids), skip_special_tokens=False)
        return text

    def border(self, left: str, right: str) -> bool:
        """Knows none: what pre-tokenizers do is theirs."""
        return False

    def encode(self, text: str, *, begins: bool) -> array[int]:
        """Returns the ids of a marked text.

        Args:
            text: What a template rendered.
            begins: Whether the prompt begins with it; else a control token stands before it.
        """
        ids = array(TYPECODE)
        for part in self.special.cut(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._run(part, begins=begins and not ids)
        return ids

    def _run(self, run: str, *, begins: bool) -> array[int]:
        if len(run) < _CACHED_RUN:
            return self._encode_run(run, begins=begins)
        key = hashlib.blake2b(run.encode(errors="surrogatepass"), digest_size=16, key=b"b" if begins else b"").digest()
        known = self._runs.get(key)
        if known is None:
            known = self._runs[key] = self._encode_run(run, begins=begins)
            self._cached += len(known)
            while self._cached > _CACHED_IDS:
                # Threads may race for the last ones; who loses has nothing to drop.
                try:
                    self._cached -= len(self._runs.popitem(last=False)[1])
                except KeyError:
                    break
        return known

    def _encode_run(self, run: str, *, begins: bool) -> array[int]:
        ids = self._encode_plain(run, begins=begins)
        if self._control_ids.isdisjoint(ids):
            return array(TYPECODE, ids)
        # Some vocabularies hold control tokens as words of their own. Cut inside what reads like one.
        ids.clear()
        for piece in self.special.pieces(run):
            ids += self._encode_plain(piece, begins=begins and not ids)
        if not self._control_ids.isdisjoint(ids):
            msg = "The conversation holds text that this model's tokenizer takes for a special token."
            raise RenderError(msg)
        return array(TYPECODE, ids)

    def _encode_plain(self, run: str, *, begins: bool) -> list[int]:
        try:
            ids: list[int] = self._plain.encode(run if begins else _GUARD + run, add_special_tokens=False).ids
        except Exception as error:  # The library raises plain exceptions.
            msg = f"The model's tokenizer cannot encode the conversation: {error}"
            raise RenderError(msg) from error
        if self._renumbered:
            ids = [self._renumbered.get(token, token) for token in ids]
        return ids if begins else ids[1:]

    def _check(self) -> None:
        """Refuses tokenizers for which cutting at control tokens gives other ids than the whole text."""
        for name in list(self.special.ids)[:16]:
            for around in ("Hello, world", "user\nx\n\n", " a  b ", "é 你好"):
                text = f"{around}{name}{around}{name}{name}\n"
                if list(self.encode(text, begins=True)) != self._whole.encode(text, add_special_tokens=False).ids:
                    msg = f"tokenizer.json cannot be cut at its special token {name!r}"
                    raise ValueError(msg)


def _controls(token: Mapping[str, Any], template: str) -> bool:
    """Whether an added token is one that only templates may write.

    Some tokenizers add words and runs of blanks that are no control tokens at all; those stay part of any text.
    """
    content = cast("str", token["content"])
    return bool(content.strip()) and (bool(token.get("special")) or content in template)
