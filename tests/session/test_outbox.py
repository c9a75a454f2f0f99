from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.session.outbox import QUANTUM, Delta, Outbox, Queue
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import OutputItemDone, ResponseCreated, ResponseDone, ServerEvent
from turnwire.v1.session_pb2 import Pong

BATCH = 64 * 1024


def pull(outbox: Outbox, max_bytes: int = BATCH) -> list[ServerEvent]:
    batch = ConnectResponse()
    outbox.pull(batch, max_bytes)
    outbox.sent(batch.ByteSize())
    return list(batch.events)


def drain(outbox: Outbox) -> list[ServerEvent]:
    events: list[ServerEvent] = []
    while some := pull(outbox):
        events += some
    return events


def say(outbox: Outbox, queue: Queue, text: str, content_index: int = 0) -> None:
    outbox.text(queue, Delta.TEXT, 0, content_index, text)


def test_a_quiet_queue_waits_for_at_most_a_quantum_of_every_other() -> None:
    outbox = Outbox(merge=False)
    flooding = [Queue(handle, 0) for handle in range(1, 6)]
    for queue in flooding:
        for _ in range(5_000):
            say(outbox, queue, "x" * 20)
    pull(outbox)
    quiet = Queue(99, 0)
    say(outbox, quiet, "now")
    before = 0
    while True:
        events = pull(outbox)
        if any(event.response == 99 for event in events):
            before += sum(e.ByteSize() for e in events[: [e.response for e in events].index(99)])
            break
        before += sum(e.ByteSize() for e in events)
    assert before <= (len(flooding) + 1) * (QUANTUM + 100)


def test_small_batches_do_not_save_up_turns() -> None:
    outbox = Outbox(merge=False)
    one, two = Queue(1, 0), Queue(2, 0)
    for _ in range(4_000):
        say(outbox, one, "x" * 20)
        say(outbox, two, "x" * 20)
    for _ in range(100):
        pull(outbox, 300)
    handles = [event.response for _ in range(200) for event in pull(outbox, 300)]
    longest = current = 0
    for before, after in pairwise(handles):
        current = current + 1 if before == after else 0
        longest = max(longest, current)
    assert longest * 44 <= QUANTUM + 400


def test_a_large_event_is_paid_for_by_passing_turns() -> None:
    outbox = Outbox(merge=False)
    large, small = Queue(1, 0), Queue(2, 0)
    for _ in range(10):
        outbox.event(large, ServerEvent(output_item_done=OutputItemDone()), 20_000)
        large.items[-1].output_item_done.item.opaque.json = "x" * 20_000  # type: ignore[union-attr]
    for _ in range(10_000):
        say(outbox, small, "x" * 20)
    sizes = {1: 0, 2: 0}
    for _ in range(4):
        for event in pull(outbox):
            sizes[event.response] += event.ByteSize()
    assert sizes[1] <= sizes[2] * 2


def test_answers_go_first_and_need_no_credit() -> None:
    outbox = Outbox(merge=False)
    outbox.set_session_credit(16_384)
    queue = Queue(1, 0)
    for _ in range(1_000):
        say(outbox, queue, "x" * 100)
    sent = pull(outbox)
    assert sent
    assert not pull(outbox)
    assert not outbox.sendable
    outbox.answer(ServerEvent(pong=Pong(nonce=1)))
    assert [event.WhichOneof("event") for event in pull(outbox)] == ["pong"]
    assert outbox.acknowledged(outbox.last_event_id)
    assert outbox.outstanding == 0
    assert pull(outbox)


def test_an_acknowledgement_of_what_was_not_sent_is_not_taken() -> None:
    outbox = Outbox(merge=False)
    assert not outbox.acknowledged(1)
    assert outbox.acknowledged(0)


def test_ended_responses_keep_their_turn_when_credit_comes_back() -> None:
    outbox = Outbox(merge=False)
    queue = Queue(1, 100)
    say(outbox, queue, "x" * 200)
    say(outbox, queue, "tail")
    outbox.event(queue, ServerEvent(done=ResponseDone()), 10)
    assert len(drain(outbox)) == 1
    assert not outbox.waiting
    assert not outbox.empty
    found = outbox.find(1)
    assert found is queue
    outbox.consumed(queue, 1_000)
    assert [event.WhichOneof("event") for event in drain(outbox)] == ["output_text_delta", "done"]
    assert outbox.empty
    assert outbox.find(1) is None


def test_events_that_end_waiting_are_sent_without_credit_and_not_counted() -> None:
    outbox = Outbox(merge=False)
    queue = Queue(1, 100)
    outbox.event(queue, ServerEvent(created=ResponseCreated(request_id="x" * 500)), 500)
    outbox.event(queue, ServerEvent(done=ResponseDone()), 10)
    assert len(drain(outbox)) == 2
    assert queue.unconsumed == 0


def test_what_is_counted_is_the_serialized_size_of_events() -> None:
    outbox = Outbox(merge=False)
    queue = Queue(7, 10_000)
    say(outbox, queue, "häß" * 10)
    outbox.event(queue, ServerEvent(output_item_done=OutputItemDone(output_index=3)), 5)
    events = drain(outbox)
    assert queue.unconsumed == sum(event.ByteSize() for event in events)


def test_lifting_credit_lets_everything_go() -> None:
    outbox = Outbox(merge=False)
    outbox.set_session_credit(16_384)
    queue = Queue(1, 100)
    for _ in range(1_000):
        say(outbox, queue, "x" * 100)
    drain(outbox)
    assert not outbox.empty
    outbox.lift_credit()
    drain(outbox)
    assert outbox.empty
    assert queue.sequence == 1_000


def test_only_adjacent_text_of_one_part_is_joined_and_only_where_asked() -> None:
    for merge, expected in ((True, ["ab", "c", "d"]), (False, ["a", "b", "c", "d"])):
        outbox = Outbox(merge=merge)
        queue = Queue(1, 0)
        say(outbox, queue, "a")
        say(outbox, queue, "b")
        say(outbox, queue, "c", content_index=1)
        outbox.text(queue, Delta.REFUSAL, 0, 1, "d")
        events = drain(outbox)
        assert [e.output_text_delta.delta or e.refusal_delta.delta for e in events] == expected
        assert [e.sequence_number for e in events] == list(range(len(expected)))


def test_joined_text_stays_small() -> None:
    outbox = Outbox(merge=True)
    queue = Queue(1, 0)
    for _ in range(1_000):
        say(outbox, queue, "x" * 100)
    assert max(len(e.output_text_delta.delta) for e in drain(outbox)) <= 4_096 + 100


operations = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.integers(1, 3), st.text(max_size=300)),
        st.tuples(st.just("event"), st.integers(1, 3), st.just("")),
        st.tuples(st.just("done"), st.integers(1, 3), st.just("")),
        st.tuples(st.just("answer"), st.just(0), st.just("")),
        st.tuples(st.just("credit"), st.integers(1, 3), st.just("")),
        st.tuples(st.just("ack"), st.just(0), st.just("")),
        st.tuples(st.just("pull"), st.just(0), st.just("")),
    ),
    max_size=60,
)


@given(operations, st.booleans(), st.sampled_from([0, 200, 5_000]), st.sampled_from([0, 16_384]))
def test_nothing_is_lost_doubled_or_reordered(
    script: list[tuple[str, int, str]], merge: bool, credit: int, session_credit: int
) -> None:
    outbox = Outbox(merge=merge)
    outbox.set_session_credit(session_credit)
    queues = {handle: Queue(handle, credit) for handle in (1, 2, 3)}
    said: dict[int, str] = dict.fromkeys(queues, "")
    received: list[ServerEvent] = []
    ids: list[int] = []

    def take() -> None:
        batch = ConnectResponse()
        outbox.pull(batch, 1_000)
        if batch.events:
            outbox.sent(batch.ByteSize())
            ids.extend(range(batch.first_event_id, batch.first_event_id + len(batch.events)))
            received.extend(batch.events)

    for action, handle, text in script:
        match action:
            case "text":
                say(outbox, queues[handle], text)
                said[handle] += text
            case "event":
                event = ServerEvent(output_item_done=OutputItemDone(output_index=queues[handle].sequence))
                outbox.event(queues[handle], event, 10)
            case "done":
                outbox.event(queues[handle], ServerEvent(done=ResponseDone()), 10)
            case "answer":
                outbox.answer(ServerEvent(pong=Pong()))
            case "credit":
                outbox.consumed(queues[handle], 10_000)
            case "ack":
                assert outbox.acknowledged(outbox.last_event_id)
            case _:
                take()
    outbox.lift_credit()
    while not outbox.empty:
        take()
    assert ids == list(range(1, len(ids) + 1))
    for handle, queue in queues.items():
        own = [event for event in received if event.response == handle]
        assert [event.sequence_number for event in own] == list(range(queue.sequence))
        assert "".join(event.output_text_delta.delta for event in own) == said[handle]
        assert queue.bytes == 0
    assert sum(event.response == 0 for event in received) == sum(action == "answer" for action, _, _ in script)
