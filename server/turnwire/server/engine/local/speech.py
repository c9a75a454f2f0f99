"""How to speak with the model that was loaded: what renders its prompts, and what reads its output.

Above it: `token_requests` and `engine`. Below it: `vocabulary`, and the renderers and parsers of `prompt`. A model is
spoken with by ids only if everything is known of its format and found to be as llama.cpp has it; else llama.cpp's own
chat completions do it, which cost the whole conversation for every pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from turnwire.server.engine.local.llama import Llama
from turnwire.server.engine.local.model import ModelFile
from turnwire.server.engine.local.spelling import incomplete
from turnwire.server.engine.tokens.agreement import PROBE, compare_spelling
from turnwire.server.engine.tokens.rendering import ChainRenderer
from turnwire.server.prompt.parsing import TokenTable, format_of_template
from turnwire.server.prompt.parsing.dialects import DIALECTS
from turnwire.server.prompt.renderer import Chain, Head, RenderError, Step, plain_history
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role

if TYPE_CHECKING:
    from turnwire.server.prompt.template import TemplateRenderer

_PLAIN_TEXT: Final = "text"
"""The output format without calls."""
_HARMONY: Final = "<|channel|>"
"""Stands in the templates of the one format that is not told by its calls."""

_TALK: Final = ((Role.ROLE_USER, "Hello, world!"), (Role.ROLE_ASSISTANT, "Hi there.\n\nHow are you?"))


class UnspokenError(Exception):
    """A model cannot be spoken with by ids; the text says why, for the log."""


@dataclass(frozen=True, slots=True)
class Speech:
    """What is needed to speak with a model by ids."""

    chains: ChainRenderer
    output_format: str
    """What its output looks like; one of `parsing.FORMATS`."""
    table: TokenTable
    pieces: Sequence[bytes]
    """The bytes of each id; none for control tokens."""
    parts: Callable[[], Mapping[bytes, int]]
    """Returns the ids that are parts of characters, by their bytes."""
    openers: tuple[int, ...] = ()
    """Control tokens that begin a call."""

    @property
    def silent_format(self) -> str:
        """What output looks like where nothing in it may be a call."""
        plain, own = DIALECTS[_PLAIN_TEXT], DIALECTS[self.output_format]
        return plain.name if own.think == plain.think else own.name


def open_speech(file: ModelFile, llama: Llama) -> Speech:
    """Finds out how to speak with a model. Blocks, for a second or two.

    Raises:
        UnspokenError: It cannot be spoken with by ids.
    """
    try:
        # Not above: templates need Jinja, which this engine can do without.
        from turnwire.server.engine.local.vocabulary import LlamaTokenizer, read_vocabulary
        from turnwire.server.prompt.template import TemplateModel, TemplateRenderer
    except ModuleNotFoundError as error:
        raise UnspokenError(str(error)) from error
    loaded = llama.loaded
    output_format = _output_format(loaded.template, tools=loaded.tools)
    try:
        vocabulary = read_vocabulary(file.path)
        tokenizer = LlamaTokenizer(vocabulary, llama.tokenize, loaded.template)
        model = TemplateModel(tokenizer, loaded.template, loaded.tokens, vocabulary.stops)
        renderer = TemplateRenderer(model)
        table = vocabulary.table()
        differs = compare_spelling(table, PROBE, llama.tokenize([PROBE])) or _differs(renderer, llama)
    except (OSError, ValueError, RenderError) as error:
        raise UnspokenError(str(error)) from error
    if differs:
        raise UnspokenError(differs)
    pieces = table.visible(())
    return Speech(
        ChainRenderer(renderer),
        output_format,
        table,
        pieces,
        functools.cache(functools.partial(incomplete, pieces)),
        tuple(tokenizer.special.ids[name] for name in DIALECTS[output_format].openers if name in tokenizer.special.ids),
    )


def _output_format(template: str, *, tools: bool) -> str:
    """Returns the output format whose marks stand in a template."""
    if not template:
        msg = "it has no chat template"
        raise UnspokenError(msg)
    found = format_of_template(template)
    if _HARMONY not in template and (found != _PLAIN_TEXT or not tools):
        return found
    msg = "how it writes calls is not known here"
    raise UnspokenError(msg)


def _differs(renderer: TemplateRenderer, llama: Llama) -> str:
    """Compares the ids of a conversation that grew with those that llama.cpp gives for the whole of it.

    Raises:
        RenderError: The template refuses any conversation.
        OSError: llama.cpp does not answer.
    """
    talk = [*map(_message, _TALK), _message((Role.ROLE_USER, "Well, thanks."))]
    for instructions in ("Be brief.", ""):
        # Some templates know no instructions.
        try:
            builder = renderer.messages()
            start = renderer.start(Head(instructions=instructions))
            chain: Chain = start
            for at, item in enumerate(talk):
                chain = chain.extend([Step((item,))], plain_history([Step((each,)) for each in talk[:at]])).chain
                builder.add(item)
            whole = start.dialect.whole(builder.messages)
        except RenderError:
            if not instructions:
                raise
            continue
        theirs = llama.tokenize([whole], add_special=True, parse_special=True)
        if len(theirs) > 1 and theirs[0] == theirs[1]:
            # The template and the tokenizer both say how a text begins; llama.cpp's chat completions drop one.
            theirs = theirs[1:]
        if chain.prompt.join().tolist() != theirs:
            return "a conversation has other ids here than llama.cpp gives it"
        break
    return ""


def _message(said: tuple[Role.ValueType, str]) -> Item:
    role, text = said
    return Item(message=Message(role=role, content=MessageContent(text=text)))
