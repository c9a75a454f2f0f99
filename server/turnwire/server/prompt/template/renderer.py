"""Renders chains with a model's chat template: appended to where the template appends, whole where it does not.

Above: whoever renders chains, through the port. Below: the dialect of each head, and the tokenizer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, cast

from turnwire.server.prompt.parts import json_object
from turnwire.server.prompt.renderer import Extension, Head, History, Step
from turnwire.server.prompt.segments import EMPTY, Rendered, Segment
from turnwire.server.prompt.template.dialect import Dialect, Ending
from turnwire.server.prompt.template.environment import ChatTemplate
from turnwire.server.prompt.template.messages import Messages, lead
from turnwire.server.prompt.template.port import Tokenizer

VERSION: Final = "1"
"""Raised with every change of the tokens that some conversation is rendered to."""

TOKENIZER_FILE: Final = "tokenizer.json"
CONFIG_FILE: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"
GENERATION_FILE: Final = "generation_config.json"

_NAMED_TOKENS: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_HEADS: Final = 64
"""Heads whose proofs are kept."""


@dataclass(frozen=True, slots=True)
class TemplateModel:
    """What is read of a model to render for it."""

    tokenizer: Tokenizer
    source: str
    """The text of its chat template."""
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its named tokens, such as `bos_token`, which templates write."""
    stop_token_ids: Sequence[int] = ()
    """Ids that end its turns, beside the one its template ends messages with."""

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> TemplateModel:
        """Reads a model's files by their names.

        Those are `tokenizer.json`, a template in `chat_template.jinja` or `tokenizer_config.json`, and
        `generation_config.json` where there is one.

        Raises:
            ValueError: A file is missing or not valid; the text names it.
        """
        # Not above: whoever has another tokenizer need not have this one's library.
        from turnwire.server.prompt.template.tokens import TemplateTokenizer

        if TOKENIZER_FILE not in files:
            msg = f"{TOKENIZER_FILE} is missing: only tokenizers in Hugging Face's format can be used"
            raise ValueError(msg)
        config = json_object(files.get(CONFIG_FILE, b"").decode(errors="replace"))
        source = _template_source(files, config)
        ChatTemplate(source)
        tokenizer = TemplateTokenizer(files[TOKENIZER_FILE], source)
        tokens = {name: text for name in _NAMED_TOKENS if (text := _token_text(config.get(name)))}
        generation = json_object(files.get(GENERATION_FILE, b"").decode(errors="replace"))
        named: object = generation.get("eos_token_id")
        stops: list[object] = cast("list[object]", named) if isinstance(named, list) else [named]
        stops = [*stops, tokenizer.id_of(tokens.get("eos_token", ""))]
        return cls(tokenizer, source, tokens, [each for each in stops if isinstance(each, int)])


class TemplateRenderer:
    """Renders for a model that comes with a tokenizer and a chat template."""

    name = "template"

    def __init__(self, model: TemplateModel | Mapping[str, bytes]) -> None:
        """Takes a model, or its files; see `TemplateModel.of_files`.

        Raises:
            ValueError: The template is not valid, or a file is not; the text names it.
        """
        if not isinstance(model, TemplateModel):
            model = TemplateModel.of_files(model)
        self._template = ChatTemplate(model.source)
        self.tokenizer: Tokenizer = model.tokenizer
        self._variables = dict(model.tokens)
        self.tokenizer_hash = self.tokenizer.hash
        self._arguments_as_text = False
        plain = self._new_dialect(Head())
        self._arguments_as_text = plain.takes_arguments_as_text()
        self._closing = plain.closing
        described = f"template {VERSION} {sorted(self._variables.items())!r} {model.source}"
        self.template_hash = hashlib.sha256(described.encode(errors="surrogatepass")).hexdigest()
        self.stop_token_ids: tuple[int, ...] = self._stop_ids(model.stop_token_ids)
        self._dialect = lru_cache(_HEADS)(self._new_dialect)
        self.framing = lru_cache(_HEADS)(self._encode_framing)
        """Encodes what a template writes around messages: the same few texts again and again."""

    def messages(self, open_calls: Mapping[str, str] | None = None) -> Messages:
        """Returns a builder of messages as the template reads them."""
        return Messages(self.tokenizer.special.mark, open_calls, arguments_as_text=self._arguments_as_text)

    def start(self, head: Head, *, cached: bool = True) -> TemplateChain:
        """Returns the chain without items; what a head means for the template is found out once, unless that is not
        wanted."""
        return TemplateChain(self, self._dialect(head) if cached else self._new_dialect(head), EMPTY, EMPTY)

    def _encode_framing(self, text: str) -> Segment:
        return Segment(self.tokenizer.encode(text, begins=False))

    def _new_dialect(self, head: Head) -> Dialect:
        special, as_text = self.tokenizer.special, self._arguments_as_text
        border = self.tokenizer.border
        return Dialect(self._template, special, self._variables, head, arguments_as_text=as_text, border=border)

    def _stop_ids(self, known: Sequence[int]) -> tuple[int, ...]:
        """Returns the ids that end a turn: as the model's authors say, and the one its template ends messages with."""
        found: list[int | str | None] = [*known]
        if self._closing is not None:
            found.append(next(self.tokenizer.special.cut(self._closing.lstrip()), None))
        return tuple(dict.fromkeys(each for each in found if isinstance(each, int)))


@dataclass(frozen=True, slots=True)
class TemplateChain:
    """A conversation as a template says it; a value."""

    renderer: TemplateRenderer
    dialect: Dialect
    rendered: Rendered
    """All messages."""
    prompt: Rendered
    """The tokens with the beginning of the model's answer."""
    begun: bool = False
    """Whether anything was rendered."""
    ending: Ending = field(default_factory=Ending)
    """How the conversation ends."""
    open_calls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the calls that have no output yet, by call id."""

    def extend(self, steps: Sequence[Step], history: History) -> Extension:
        """Returns the chain that goes on with some steps; the whole history is rendered where the template needs it.

        Raises:
            RenderError: The template refuses the conversation.
        """
        growing = _Growing(self)
        if self.ending.behind and all(growing.step(step) for step in steps):
            extension = growing.extension()
            if extension is not None:
                return extension
        return self._whole([*history(), *steps])

    def _whole(self, steps: Sequence[Step]) -> Extension:
        """Renders everything from items: what was sampled before is text again."""
        tokenizer = self.renderer.tokenizer
        builder = self.renderer.messages()
        for step in steps:
            for item in (*step.said, *step.items):
                builder.add(item)
        messages = lead(builder.messages)
        prompt = self.dialect.whole(messages)
        ending = Ending().after(messages)
        opening = self.dialect.opening(ending)
        if opening is not None and prompt.endswith(opening):
            rendered = EMPTY.extend(Segment(tokenizer.encode(prompt.removesuffix(opening), begins=True)))
            opened = rendered.extend(self.renderer.framing(opening))
        else:
            # There is no place to go on from: every turn is whole.
            rendered = opened = EMPTY.extend(Segment(tokenizer.encode(prompt, begins=True)))
            ending = Ending()
        chain = replace(
            self, rendered=rendered, prompt=opened, begun=True, ending=ending, open_calls=builder.open_calls
        )
        return Extension(chain, builder.items, builder.skipped, whole=self.begun)


class _Growing:
    """Appends steps to a chain, as long as the template lets it."""

    def __init__(self, chain: TemplateChain) -> None:
        self._chain = chain
        self._tokenizer = chain.renderer.tokenizer
        self._rendered = chain.rendered
        self._prompt: Rendered | None = chain.prompt
        self._ending = chain.ending
        self._open_calls: Mapping[str, str] = chain.open_calls
        self._items = 0
        self._skipped = 0

    def step(self, step: Step) -> bool:
        """Appends a step; False where that cannot be done."""
        if step.sampled is not None and not self._sampled(step):
            return False
        if not step.items:
            return True
        builder = self._chain.renderer.messages(self._open_calls)
        for item in step.items:
            builder.add(item)
        self._items += builder.items
        self._skipped += builder.skipped
        if not builder.messages:
            return True
        if builder.messages[0]["role"] == "assistant" and self._ending.behind[-1].role == "assistant":
            # The last message itself may go on.
            return False
        text = self._chain.dialect.added(self._ending, builder.messages)
        if text is None:
            return False
        self._rendered = self._rendered.extend(Segment(self._tokenizer.encode(text, begins=False)))
        self._ending = self._ending.after(builder.messages)
        self._open_calls = builder.open_calls
        self._prompt = None
        return True

    def _sampled(self, step: Step) -> bool:
        closing = self._chain.dialect.closing
        prompt = self._open()
        sampled = step.sampled
        if closing is None or prompt is None or sampled is None:
            return False
        end = self._chain.renderer.framing(closing).ids
        stops = self._chain.renderer.stop_token_ids
        if sampled and sampled[-1] in stops:
            if set(stops).isdisjoint(end):
                # The template ends messages without a token, so that one in between would be something else.
                sampled = sampled[:-1]
            else:
                # Another stop token than the template's own stands in its place.
                stop = sampled[-1] if sampled[-1] in end else end[0]
                end = end[end.index(stop) + 1 :]
        self._rendered = prompt.extend(Segment(sampled)).extend(Segment(end))
        builder = self._chain.renderer.messages(self._open_calls)
        for item in step.said:
            builder.add(item)
        self._open_calls = builder.open_calls
        self._ending = self._ending.after(builder.messages or [{"role": "assistant", "content": ""}])
        self._prompt = None
        return True

    def _open(self) -> Rendered | None:
        """Returns the prompt at this point; None where the template gives none that only appends."""
        if self._prompt is None:
            opening = self._chain.dialect.opening(self._ending)
            if opening is None:
                return None
            self._prompt = self._rendered.extend(self._chain.renderer.framing(opening))
        return self._prompt

    def extension(self) -> Extension | None:
        prompt = self._open()
        if prompt is None:
            return None
        chain = replace(
            self._chain, rendered=self._rendered, prompt=prompt, ending=self._ending, open_calls=self._open_calls
        )
        return Extension(chain, self._items, self._skipped)


def _template_source(files: Mapping[str, bytes], config: Mapping[str, Any]) -> str:
    """Returns the template's text; of several, the default one."""
    alone = files.get(TEMPLATE_FILE)
    if alone is not None:
        return alone.decode(errors="replace")
    found: object = config.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in cast("list[dict[str, Any]]", found)}
        found = named.get("tool_use") or named.get("default")
    if not isinstance(found, str):
        msg = f"there is no chat template: give one as {TEMPLATE_FILE} or as 'chat_template' in {CONFIG_FILE}"
        raise ValueError(msg)
    return found


def _token_text(token: object) -> str:
    if isinstance(token, dict):
        token = cast("dict[str, object]", token).get("content")
    return token if isinstance(token, str) else ""
