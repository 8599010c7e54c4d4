"""Records that a runtime hands over one by one."""

import pytest

import foldlog
from foldlog._history import recording
from foldlog.eventstore import InvalidArgument
from foldlog.eventstore.log import origins
from foldlog.eventstore.sources.reading import blocks_of, source_of
from foldlog.runtimes import parse
from tests.foldlog.records import said
from tests.sound import assert_sound


def asks(number):
    called = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [called]}


def answers(number, words):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": words}


def stored_records(store, conversation):
    source = source_of(store.database, conversation)
    return [
        parse(record) for block in blocks_of(store.database, source) for record in block.records()
    ]


def append_each(history, records):
    for record in records:
        history.append_records([record], format="openai-chat")


def causes(history, start=0):
    return [getattr(event, "cause", None) for event in history.events(start)]


RECORDS = [
    {"role": "user", "content": "go"},
    asks(0),
    answers(0, "one"),
    asks(1),
    answers(1, "two"),
]


def test_fork_continues_after_its_shared_records(histories):
    history = histories["whole"]
    append_each(history, [*RECORDS, asks(1)])
    fork = history.fork(4, "fork")
    own = [answers(1, "other"), {"role": "user", "content": "on"}]
    append_each(fork, own)
    assert [*fork.export()] == [*RECORDS[:4], *own]
    assert causes(fork) == [None, None, 1, None, 3, None]
    assert [*history.export()] == [*RECORDS, asks(1)]


@pytest.mark.parametrize("redacted", [False, True])
def test_fork_keeps_its_shared_records(redacted, histories):
    both = {**asks(0), "tool_calls": [*asks(0)["tool_calls"], *asks(1)["tool_calls"]]}
    histories["whole"].append_records([RECORDS[0], both, *RECORDS[2:]], format="openai-chat")
    fork = histories["whole"].fork(4, "fork")
    if redacted:
        histories["whole"].redact(0, reason="asked for")
    expected = [*fork._stored_records().all()]
    assert [start for start, _ in expected] == [0, 1, 3][redacted:]
    with foldlog.open("memory:") as copy:
        for _ in range(2):
            copy.maintenance.copy_from(histories, "fork")
            assert copy.maintenance.differences_from(histories, "fork") == ()
        histories.erase("whole", reason="asked for", detach_forks=True)
        for place in (copy, histories):
            assert [*place["fork"]._stored_records().all()] == expected
            assert_sound(place.store)


def test_reused_id_has_no_erased_records(histories):
    histories["c1"].append_records(RECORDS[:2], format="openai-chat")
    histories.erase("c1", reason="asked for")
    again = histories.create("c1", {}, replace_erased=True)
    says = {"role": "user", "content": "hi"}
    # as long as the erased one was
    again.append([foldlog.Message(source="user", content="hi")] * 2)
    again.append_records([answers(0, "of the first one"), *RECORDS], format="openai-chat")
    assert [*again.export("openai-chat")] == [
        says,
        says,
        answers(0, "of the first one"),
        *RECORDS,
    ]
    assert causes(again, 3) == [None, None, None, 5, None, 7]


def test_records_of_another_format_are_refused(histories):
    histories["c"].append_records(RECORDS, format="openai-chat")
    with pytest.raises(InvalidArgument, match="has records of the format 'openai-chat'"):
        histories["c"].append_records(RECORDS, format="openai-responses")


def test_rewind_is_an_event_of_its_record(histories):
    def turn(number, **actions):
        return {
            "id": f"e{number}",
            "author": "user",
            "invocation_id": f"i{number}",
            "timestamp": 1.5e9 + number,
            "content": {"role": "user", "parts": [{"text": f"turn {number}"}]},
            "actions": actions,
        }

    history = histories["c"]
    rewound = {"rewind_before_invocation_id": "i1"}
    for record in (turn(0), turn(1), turn(2, **rewound), turn(3)):
        history.append_records([record], format="google-adk")
    events = list(history.events())
    stored = history._stored_records()
    names = [type(event).__name__ for event in events]
    assert names == [*["Message"] * 3, "Retraction", "Message"]
    assert [stored.ids(event) for event in events] == [
        range(1),
        range(1, 2),
        range(2, 4),
        range(2, 4),
        range(4, 5),
    ]
    backwards = [
        stored.record([event])["id"] for event in (events[4], events[2], events[0], events[1])
    ]
    assert backwards == ["e3", "e2", "e0", "e1"]


def test_record_after_a_redacted_one_is_attached(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    with foldlog.open(url) as histories:
        history = histories["c"]
        history.append_records(
            [said(0, "one"), {**said(1, "secret"), "parent_id": "event-0"}], format="openhands-v1"
        )
        history.redact(1, reason="asked to")
    with foldlog.open(url) as histories:  # another process decodes what is there
        history = histories["c"]
        history.append_records([{**said(2, "two"), "parent_id": "event-1"}], format="openhands-v1")
        assert [event.origin.id for event in history.view()] == ["event-0", "event-1", "event-2"]
        assert "secret" not in repr([*history._stored_records().all()])


def append_unknown(history, *records):
    """Append the records that are not stored yet, and return the number of their events."""
    return len(history.append_records(records, format="openhands-v1", dedupe="origin"))


def test_records_that_follow_are_not_looked_up(monkeypatch, histories):
    lookups = []
    find_known = origins.find_known

    def noting(*arguments):
        lookups.append(1)
        return find_known(*arguments)

    monkeypatch.setattr(origins, "find_known", noting)
    records = [said(number, f"turn {number}") for number in range(5)]
    history = histories["c"]
    assert append_unknown(history, *records[:3]) == 3
    assert append_unknown(history, records[3]) == 1
    assert not lookups  # the ids of the records follow the stored ones, so the records are new
    assert append_unknown(history, *records[3:]) == 1
    assert lookups


def test_stored_records_are_left_out(histories):
    records = [said(number, f"turn {number}") for number in range(12)]
    history = histories["c"]

    def append(*chosen):
        return append_unknown(history, *(records[number] for number in chosen))

    assert append(0, 1, 2, 3) == 4
    assert append(2, 3, 4, 5) == 2
    assert append(4, 5) == 0
    assert append(6, 6, 7) == 2
    assert append(*range(12)) == 4
    assert [*history.export()] == records
    assert [span.start for span in history._all_records().spans] == [*range(12)]
    other = histories["d"]
    for _ in range(2):
        other.append_records(records[:3], format="openhands-v1", dedupe="origin")
    assert [*other.export()] == records[:3]


def test_stored_record_does_not_end_the_last_attempt(histories, monkeypatch):
    monkeypatch.setattr(recording, "_TRIES", 1)
    records = [said(number, f"turn {number}") for number in range(3)]
    history = histories["c"]
    assert append_unknown(history, *records[:2]) == 2
    assert append_unknown(history, *records[1:]) == 1
    assert [*history.export()] == records


@pytest.mark.parametrize("is_same_process", [True, False])
def test_merged_blocks_leave_out_redacted_records(tmp_path, is_same_process):
    url = f"sqlite:///{tmp_path}/a.db"
    records = [{"role": "user", "content": f"secret {number}"} for number in range(12)]
    with foldlog.open(url) as histories, foldlog.open(url) as others:
        history = histories["c"]
        append_each(history, records[:3])
        (history if is_same_process else others["c"]).redact(1, reason="asked to")
        append_each(history, records[3:])
        stored = stored_records(histories.store, "c")
        assert [record.get("content") for record in stored] == [
            None if number == 1 else f"secret {number}" for number in range(12)
        ]


def test_two_programs_append_by_turns(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    with foldlog.open(url) as first, foldlog.open(url) as second:
        records = [{"role": "user", "content": f"turn {number}"} for number in range(60)]
        for number, record in enumerate(records):
            program = first if number % 3 else second
            program["c"].append_records([record], format="openai-chat")
            if number % 7 == 0:
                first["c"].append(foldlog.Annotation(name="note"))
        assert stored_records(first.store, "c") == records
        spans = [(span.number, span.stop - span.start) for span in first["c"]._all_records().spans]
        assert spans == [(number, 1) for number in range(60)]
        assert_sound(first.store)
