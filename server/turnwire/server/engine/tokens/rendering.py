"""Renders a pass's prompt: finds how far the chain was rendered before, and renders only what came since.

Above: token engines, once per pass, on the event loop or in a thread. Below: the renderers of `prompt/`, and the
transcript, in which every segment has room for what a renderer remembers of it.
"""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from turnwire.server.prompt.parts import call_of, output_of
from turnwire.server.prompt.renderer import Chain, Extension, Head, Renderer, Step
from turnwire.server.prompt.segments import Rendered, Segment
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.transcript import Entry, Origin, Transcript
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, ToolOutput

MODEL_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""The files that are read of a model's folder; the first is required, and a template in one of the next two."""

KEPT_PER_TOKEN: Final = 8
"""Bytes that a rendered token stays in memory with: its id, and the id as it was packed for the engine."""

ALL_TURNS: Final = "all_turns"
"""The value of `reasoning.context` that keeps the reasoning of finished turns."""


@dataclass(frozen=True, slots=True)
class RenderStats:
    """What rendering a prompt cost, for metrics."""

    items_rendered: int
    """Items put into tokens; sampled ones are not."""
    first: bool
    """Whether nothing of the chain was rendered before."""
    prefix_changed: bool
    """Whether everything was rendered again, since what stands in front of the items changed."""
    whole: bool
    """Whether the history was rendered again, since the model's template is not append-only here."""
    retailed: int
    """Tokens of a finished turn gone through once more, to drop its reasoning."""
    skipped: int
    """Items and parts left out, since the format cannot say them."""


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as tokens."""

    rendered: Rendered
    """All of it; join or pack it at the engine's edge only."""
    new: array[int]
    """The ids behind `cached`: in a chain that only grows, what came since the last sampled token."""
    cached: int
    """How many ids it begins with that the chain's last pass ended with, sampled ones included: what an engine's prefix
    cache should still hold. Less than the last pass had where something was dropped or changed."""
    stats: RenderStats


@dataclass(frozen=True, slots=True)
class _Memo:
    """What is remembered of a chain at the segment from which a pass began."""

    renderer: Renderer
    head: Head
    chain: Chain
    prompt: Rendered


class ChainRenderer:
    """Renders the prompts of all chains of one model format. Safe to use from several threads."""

    def __init__(self, renderer: Renderer, *, today: Callable[[], str] | None = None) -> None:
        """Takes the renderer, and who tells the date as YYYY-MM-DD; a chain keeps the date it began with."""
        self.renderer = renderer
        self._today = today or _today

    def render(self, prompt: Prompt) -> RenderedPrompt:
        """Renders a prompt; costs what is new since the chain's last pass.

        Raises:
            RenderError: The model's format cannot say this conversation.
        """
        transcript = prompt.transcript
        memo, since = self._find(transcript)
        head = _head(prompt, memo.head.date if memo is not None else self._today())
        changed = memo is not None and memo.head != head
        cached = prompt.switches.token_cache
        if memo is not None and not changed:
            # The same words, kept once for the whole chain.
            head = memo.head
        if memo is None or changed or not cached:
            chain, base = self.renderer.start(head, cached=cached), None
            segments = list(transcript.segments())
            segments.reverse()
        else:
            chain, base, segments = memo.chain, _after(transcript, len(since)), since
        extension = Extension(chain)
        if segments:
            steps = [self._step(segment) for segment in segments]
            extension = chain.extend(steps, lambda: self._history(base))
        rendered = extension.chain.prompt
        transcript.rendering = _Memo(self.renderer, head, extension.chain, rendered)
        base_length = memo.prompt.length if memo is not None and not changed and cached else 0
        transcript.kept = KEPT_PER_TOKEN * max(0, rendered.length - base_length)
        new = rendered.new_since(self._known(memo, since))
        prompt.visits.note("render", extension.items_rendered)
        tokenized = len(new) if cached else rendered.length
        prompt.visits.note("tokenize", len(segments), tokenized + extension.retailed)
        return RenderedPrompt(
            rendered,
            new,
            rendered.length - len(new),
            RenderStats(
                extension.items_rendered,
                memo is None,
                changed,
                extension.whole,
                extension.retailed,
                extension.skipped,
            ),
        )

    def _find(self, transcript: Transcript) -> tuple[_Memo | None, list[Transcript]]:
        """Returns the newest memo of this renderer, and the segments that came after it, oldest first."""
        since: list[Transcript] = []
        found: _Memo | None = None
        for segment in transcript.segments():
            memo = segment.rendering
            if isinstance(memo, _Memo) and memo.renderer is self.renderer:
                found = memo
                break
            since.append(segment)
        since.reverse()
        return found, since

    def _known(self, memo: _Memo | None, since: list[Transcript]) -> Rendered | None:
        """Returns what the engine has seen of this chain: the last pass's prompt and what it sampled."""
        if memo is None:
            return None
        for segment in since:
            record = segment.record
            if record is not None and self._is_ours(segment):
                return memo.prompt.extend(Segment(record.sampled))
        return memo.prompt

    def _is_ours(self, segment: Transcript) -> bool:
        """Whether a segment's tokens were sampled in this renderer's format."""
        record = segment.record
        return (
            record is not None
            and len(record.sampled) > 0
            and record.template_hash == self.renderer.template_hash
            and record.tokenizer_hash == self.renderer.tokenizer_hash
        )

    def _step(self, segment: Transcript) -> Step:
        record = segment.record
        if record is None or not self._is_ours(segment) or not record.verbatim:
            return Step(tuple(entry.item() for entry in segment.new))
        items: list[Item] = []
        said: list[Item] = []
        for entry in segment.new:
            item = entry.item()
            if entry.origin in (Origin.MODEL, Origin.HOSTED):
                said.append(item)
                items += _hosted_output(entry, item)
            else:
                items.append(item)
        return Step(tuple(items), record.sampled, tuple(said))

    def _history(self, transcript: Transcript | None) -> Iterator[Step]:
        if transcript is not None:
            for segment in reversed(list(transcript.segments())):
                yield self._step(segment)


def read_model_files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a model's folder that a `TemplateRenderer` reads.

    Raises:
        OSError: The folder or a file in it cannot be read.
    """
    if not folder.is_dir():
        msg = f"{folder} is no folder"
        raise NotADirectoryError(msg)
    return {name: path.read_bytes() for name in MODEL_FILES if (path := folder / name).is_file()}


def _hosted_output(entry: Entry, item: Item) -> list[Item]:
    """Returns the output that a hosted call brought along: the model sampled the call only."""
    call, output = call_of(item), output_of(item)
    if entry.origin is not Origin.HOSTED or call is None or output is None:
        return []
    answer = FunctionCallOutput(call_id=call.call_id, output=ToolOutput(text="\n".join(output.texts)))
    return [Item(function_call_output=answer)]


def _after(transcript: Transcript, count: int) -> Transcript | None:
    """Returns the segment so many before the newest."""
    segment: Transcript | None = transcript
    for _ in range(count):
        segment = segment.parent if segment is not None else None
    return segment


def _head(prompt: Prompt, date: str) -> Head:
    settings = prompt.settings
    head = Head(
        model=prompt.model,
        instructions=settings.instructions,
        tools=prompt.tools.parsed(),
        tools_digest=prompt.tools.digest,
        effort=settings.reasoning.effort,
        date=date,
        all_reasoning=settings.reasoning.context == ALL_TURNS,
    )
    if settings.text.format.HasField("json_schema"):
        schema = settings.text.format.json_schema
        head = replace(head, schema_name=schema.name, schema=schema.schema, schema_description=schema.description)
    return head


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
