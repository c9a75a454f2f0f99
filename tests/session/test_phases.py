"""Phases and ends of text: what keeps a preamble and an answer two messages."""

from __future__ import annotations

from turnwire.server.session.chunks import CallEnd, CallStart, Channel, TextChunk, TextEnd

from .core import Core


def messages(core: Core) -> list[tuple[str, str]]:
    items = [e.output_item_done.item for e in core.events if e.WhichOneof("event") == "output_item_done"]
    return [
        (item.message.phase, "".join(part.output_text.text for part in item.message.content.parts.parts))
        for item in items
        if item.WhichOneof("kind") == "message"
    ]


def test_a_change_of_phase_begins_another_message() -> None:
    core = Core()
    core.create()
    core.output(
        [
            TextChunk(Channel.TEXT, "First I look.", phase="commentary"),
            TextChunk(Channel.TEXT, "It is ", phase="final_answer"),
            TextChunk(Channel.TEXT, "done.", phase="final_answer"),
        ]
    )
    core.finish()
    assert messages(core) == [("commentary", "First I look."), ("final_answer", "It is done.")]


def test_an_end_of_text_begins_another_message_of_the_same_phase() -> None:
    core = Core()
    core.create()
    core.output([TextChunk(Channel.TEXT, "a"), TextEnd(), TextEnd(), TextChunk(Channel.TEXT, "b")])
    core.finish()
    assert messages(core) == [("", "a"), ("", "b")]


def test_an_end_of_what_is_not_open_says_nothing() -> None:
    core = Core()
    core.create()
    core.output(
        [CallStart("f", call_id="c1"), TextEnd(), CallEnd(), CallEnd(), TextChunk(Channel.TEXT, "x"), CallEnd()]
    )
    core.say("y")
    core.finish()
    assert messages(core) == [("", "xy")]
    assert core.kinds().count("output_item_done") == 2
