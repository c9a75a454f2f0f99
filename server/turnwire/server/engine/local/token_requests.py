"""A prompt as llama.cpp's request for a completion of ids: only what is new of a chain is rendered and tokenized.

Above it: `passes`. Below it: the token engines' rendering and parsing, `schemas` and `forced`. Settings that a request
does not name are left to llama.cpp, whose defaults suit small models better than none.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turnwire.server.engine.chat.forced import call_schema, forced_names
from turnwire.server.engine.chat.messages import Media
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.chat.tools import EncodedTools, ToolCache
from turnwire.server.engine.local.answers import TokenAnswer
from turnwire.server.engine.local.forced import ForcedParser
from turnwire.server.engine.local.requests import LlamaRequest, Probe
from turnwire.server.engine.local.schemas import answer_schema, guided
from turnwire.server.engine.local.speech import Speech
from turnwire.server.engine.tokens.failures import overflow
from turnwire.server.engine.tokens.json_ids import JsonIds
from turnwire.server.engine.tokens.parsing import ChunkMapper
from turnwire.server.engine.tokens.passes import CacheReport, PassPlan
from turnwire.server.engine.tokens.rendering import RenderedPrompt, RenderStats
from turnwire.server.engine.tokens.sampling import wants_logprobs, wants_text_logprobs
from turnwire.server.media.parts import parts_of
from turnwire.server.prompt.parsing import OutputParser, parser_for
from turnwire.server.prompt.renderer import RenderError
from turnwire.server.session.chunks import CallKind
from turnwire.server.session.prompt import Prompt
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import ToolChoiceMode

_PROMPT_TAIL: Final = 64
"""Ids at the end of the prompt that the parser looks at: templates may have begun the model's output."""

_NO_JSON: Final = b"Z"
"""What no JSON begins with."""
_BIAS: Final = 1000.0
_SCHEMAS: Final = 256
"""Schemas of which it is remembered that llama.cpp can follow them."""
_FEW: Final = 1024
"""Candidates up to which their probabilities after sampling cost nothing; those before it cost a pass over the whole
vocabulary, a tenth of a small model's time for a token."""

_PLAIN: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty",
    "seed": "seed",
}
"""Settings, and llama.cpp's names for them."""


class _Function(msgspec.Struct):
    parameters: msgspec.Raw = msgspec.Raw(b'{"type":"object"}')


class _Tool(msgspec.Struct):
    function: _Function


_decode: Final = msgspec.json.Decoder(_Tool).decode


class TokenWriter:
    """Writes the requests to one model."""

    def __init__(
        self,
        model: str,
        speech: Speech,
        context: int,
        *,
        stop: tuple[str, ...] = (),
        reuse: bool = True,
        max_output: int = 0,
        on_rendered: Callable[[RenderStats], None] = lambda _: None,
        on_cached: Callable[[CacheReport], None] = lambda _: None,
    ) -> None:
        """Takes what is the same for all requests.

        Args:
            model: The model's name, for messages.
            speech: How to speak with the model.
            context: Ids of prompt and output together.
            stop: Texts that end every answer.
            reuse: Whether a slot's state is used again.
            max_output: Most ids of an answer whose request names no limit; 0 for as many as fit.
            on_rendered: Hears before each pass what rendering it cost.
            on_cached: Hears after each pass what the slot had kept.
        """
        self._speech: Final = speech
        self._context: Final = context
        self._stop: Final = stop
        self._reuse: Final = reuse
        self._max_output: Final = max_output
        self._on_rendered: Final = on_rendered
        self._on_cached: Final = on_cached
        self._tools: Final = ToolCache()
        self._media: Final = Media(model, images=False, files=False)
        self._ids: Final = JsonIds()
        self._no_json: Final = next((at for at, piece in enumerate(speech.pieces) if piece == _NO_JSON), None)
        self._followed: OrderedDict[bytes, None] = OrderedDict()

    def takes(self, prompt: Prompt) -> bool:
        """Whether a prompt can be written.

        What cannot be is an answer that may be a call, and has to follow a schema if it is none: a grammar of both
        belongs to llama.cpp's own chat completions.
        """
        settings = prompt.settings
        if answer_schema(settings) is None or not prompt.tools.data:
            return True
        return _silent(settings) or bool(forced_names(settings.tool_choice, self._tools.get(prompt.tools)))

    async def count(self, prompt: Prompt) -> int:
        """Returns the tokens of a prompt. Safe to cancel.

        Raises:
            Refusal: The model's format cannot say this conversation.
        """
        return (await self._render(prompt)).rendered.length

    async def write(self, prompt: Prompt, slot: int | None) -> LlamaRequest:
        """Writes the request of a pass. Safe to cancel.

        Args:
            prompt: What the pass starts from.
            slot: The slot to run on; None lets llama.cpp choose.

        Raises:
            Refusal: The model cannot take it.
        """
        rendered = await self._render(prompt)
        length = rendered.rendered.length
        if length >= self._context:
            failure = overflow(length, self._context)
            raise Refusal(failure.code, failure.message)
        self._on_rendered(rendered.stats)
        settings = prompt.settings
        tools = self._tools.get(prompt.tools, cached=prompt.switches.tool_cache)
        names = forced_names(settings.tool_choice, tools)
        schema = call_schema(names, tools.functions) if names else answer_schema(settings)
        plan = self._plan(prompt, rendered, forced=bool(names), free=schema is None)
        fields = self._fields(settings, self._context - length)
        if slot is not None:
            fields["id_slot"] = slot
        held = None if schema is None else guided(schema)
        if held is not None:
            fields["json_schema"] = msgspec.Raw(held.encode())
        mapper = ChunkMapper(
            self._parser(rendered, tools, forced=bool(names), silent=_silent(settings)),
            custom=[target.name for target in tools.targets.values() if target.kind is CallKind.CUSTOM],
            ids_in_deltas=settings.token_output.in_deltas,
        )
        answer = TokenAnswer(
            plan,
            mapper,
            self._speech.pieces,
            self._speech.parts,
            stops=self._speech.chains.renderer.stop_token_ids,
            alternatives=settings.top_logprobs,
            on_cached=self._on_cached,
        )
        probe = None if held is None else self._probe(rendered, fields, held, answer)
        return LlamaRequest(self._body(rendered, fields), answer, native=True, probe=probe)

    async def _render(self, prompt: Prompt) -> RenderedPrompt:
        # Always in a thread: llama.cpp is asked there, and may be busy with a long text of somebody else's.
        try:
            return await asyncio.to_thread(self._rendered, prompt)
        except RenderError as error:
            raise Refusal("invalid_request_error", str(error)) from error

    def _rendered(self, prompt: Prompt) -> RenderedPrompt:
        for segment in prompt.transcript.segments():
            if segment.rendering is not None:
                break
            for entry in segment.new:
                for part in parts_of(entry.item())[1]:
                    # A renderer leaves out what the model cannot take; but it was meant to be seen.
                    self._media.part(part)
        return self._speech.chains.render(prompt)

    def _plan(self, prompt: Prompt, rendered: RenderedPrompt, *, forced: bool, free: bool) -> PassPlan:
        settings, renderer = prompt.settings, self._speech.chains.renderer
        # What the template ends with is no end of an answer that has a form of its own.
        stops = () if forced else tuple(dict.fromkeys((*settings.stop, *(self._stop if free else ()))))
        return PassPlan(
            engine="local",
            prompt_tokens=rendered.rendered.length,
            expected_cached=rendered.cached,
            new=rendered.new,
            stops=stops,
            text_logprobs=wants_text_logprobs(settings),
            record_logprobs=settings.token_output.logprobs,
            template_hash=renderer.template_hash,
            tokenizer_hash=renderer.tokenizer_hash,
            weight_version="",
            verbatim=not forced,
            keeps_stops=False,
        )

    def _parser(self, rendered: RenderedPrompt, tools: EncodedTools, *, forced: bool, silent: bool) -> OutputParser:
        speech = self._speech
        if forced:
            return ForcedParser(speech.pieces, tools.targets)
        prompt = rendered.rendered
        tail = prompt.since(max(0, prompt.length - _PROMPT_TAIL))
        schemas = {
            tools.targets[name].name: bytes(_decode(function).function.parameters).decode()
            for name, function in tools.functions.items()
        }
        output_format = speech.silent_format if silent else speech.output_format
        return parser_for(output_format, speech.table, prompt=tail, tools=tuple(schemas), schemas=schemas)

    def _fields(self, settings: ResponseCreate, room: int) -> dict[str, Any]:
        limit = settings.max_output_tokens if settings.HasField("max_output_tokens") else self._max_output
        fields: dict[str, Any] = {
            "stream": True,
            "cache_prompt": self._reuse,
            # Without it, a prefill says nothing until it is over, and cannot be cancelled.
            "return_progress": True,
            "n_predict": min(room, limit or room),
            # The only way to have ids named.
            "n_probs": max(1, settings.top_logprobs),
        }
        for name, known_as in _PLAIN.items():
            if settings.HasField(name):  # type: ignore[arg-type]
                fields[known_as] = getattr(settings, name)
        few = not settings.HasField("top_k") or 0 < settings.top_k <= _FEW
        if few and not wants_logprobs(settings):
            fields["post_sampling_probs"] = True
        bias: list[tuple[int, float | bool]] = [(int(token), by) for token, by in settings.logit_bias.items()]
        if _silent(settings):
            # False stands for never.
            bias += [(token, False) for token in self._speech.openers]
        if bias:
            fields["logit_bias"] = bias
        return fields

    def _probe(
        self, rendered: RenderedPrompt, fields: dict[str, Any], schema: str, answer: TokenAnswer
    ) -> Probe | None:
        """Returns what to ask first, to see whether llama.cpp follows a schema: it says nothing if it cannot.

        A token that no JSON begins with is made irresistible. It comes only where no grammar forbids it. What is
        computed for that of the prompt is kept for the pass itself.
        """
        digest = hashlib.blake2b(schema.encode(errors="surrogatepass"), digest_size=16).digest()
        if digest in self._followed or self._no_json is None:
            return None
        asked = {**fields, "n_predict": 1, "temperature": 0, "logit_bias": [[self._no_json, _BIAS]]}

        def check(events: Sequence[bytes]) -> None:
            said = answer.begin_with(events)
            if said.startswith(_NO_JSON.decode()):
                msg = "The model cannot be held to this JSON schema: llama.cpp does not know all of it."
                raise Refusal("invalid_request_error", msg)
            if said:
                self._followed[digest] = None
            if len(self._followed) > _SCHEMAS:
                self._followed.popitem(last=False)

        return Probe(self._body(rendered, asked), check)

    def _body(self, rendered: RenderedPrompt, fields: dict[str, Any]) -> bytes:
        return b'{"prompt":%b,%b' % (self._ids.array(rendered.rendered), msgspec.json.encode(fields)[1:])


def _silent(settings: ResponseCreate) -> bool:
    return settings.tool_choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_NONE
