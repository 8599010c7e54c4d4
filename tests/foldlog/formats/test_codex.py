"""What the records of a Codex rollout mean, and what its agent was shown: of a whole rollout, and
record by record.
"""

from hashlib import sha256

import pytest
from hypothesis import example, given, strategies as st

import foldlog
from foldlog.eventstore import Action, CondensationAction, Retraction, SystemMessage
from foldlog.eventstore.sources.blocks import HASH_BYTES
from foldlog.formats import decode
from foldlog.formats.codex.compaction import truncate_middle
from foldlog.formats.codex.skeleton import CodexSkeleton
from foldlog.projections import View
from foldlog.runtimes import json_of
from tests.foldlog.records import write_lines
from tests.how_many import examples
from tests.said import said

CODEX = "codex"


def record(line, payload, time="2026-02-17T09:00:00.123Z"):
    return {"timestamp": time, "type": line, "payload": payload}


def item(type, **fields):
    return record("response_item", {"type": type, **fields})


def text(text, role="user"):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def message_records(*texts, role="user"):
    return [record("response_item", text(it, role)) for it in texts]


def call(call_id, name="shell", arguments='{"command":["ls"]}'):
    return item("function_call", name=name, arguments=arguments, call_id=call_id)


def output(call_id, output="done"):
    return item("function_call_output", call_id=call_id, output=output)


def compacted(message, *history):
    payload = {"message": message, **({"replacement_history": list(history)} if history else {})}
    return record("compacted", payload)


BASE = record("session_meta", {"id": "s1", "cwd": "/", "base_instructions": {"text": "You are"}})


def read(*records):
    return list(decode(records, CODEX))


def shown(events):
    """Return the contents of the View, with a tool's name for a call."""
    return [
        event.tool if isinstance(event, Action) else event.content
        for event in View.from_events(events)
    ]


# -- who speaks
# --------------------------------------------------------------------------------------------------


def test_unknown_role_is_no_event(histories):
    findings = []
    odd = text("no", "critic")
    records = [
        BASE,
        *message_records("a"),
        *message_records("no", role="critic"),
        compacted("so far", text("b"), odd, text("so far")),
        *message_records("c"),
    ]
    events = list(decode(records, CODEX, findings=findings.append))
    assert shown(events) == ["You are", "b", "so far", "c"]
    assert [str(finding).partition(";")[0] for finding in findings] == [
        "record 2: the role 'critic' is not known",
        "record 3: is a compaction, and its item 1 is not shown: the role 'critic' is not known",
    ]
    histories["c1"].append_records(records[:2], format=CODEX)
    with pytest.raises(
        foldlog.errors.InvalidEvent, match="record 0: the role 'critic' is not known"
    ):
        histories["c1"].append_records(message_records("no", role="critic"), format=CODEX)
    histories["c1"].append_records(records[3:], format=CODEX)
    assert shown(histories["c1"].events()) == shown(events)


# -- a compaction whose record has only the summary: Codex makes the prompt anew
# --------------------------------------------------------------------------------------------------


def test_newest_20_000_tokens_of_the_user_stay():
    """A token is four bytes of UTF-8. The message at the limit loses its middle."""
    first = "x" * 60_000 + "y" * 20_000
    last = "z" * 8
    records = [*message_records("older", first, last), compacted("So far")]
    events = read(*records)
    assert shown(events) == [
        "x" * 39_996 + "…2 tokens truncated…" + "x" * 19_996 + "y" * 20_000,
        last,
        "So far",
    ]
    assert [event.id for event in View.from_events(events)] == [3, 4, -7]


@pytest.mark.parametrize(
    "text, tokens, truncated",
    [
        (
            "😀" * 10 + "\nsecond line with text\n",
            8,
            "😀😀😀😀…8 tokens truncated… line with text\n",
        ),
        ("abcdef", 0, "…2 tokens truncated…"),
    ],
)
def test_a_message_is_truncated_where_codex_truncates_it(text, tokens, truncated):
    """The values come from Codex's tests."""
    assert truncate_middle(text, tokens) == truncated


def test_shortened_copies_of_messages_are_not_counted(histories):
    records = [*message_records("x" * 80_004), compacted("So far")]
    histories["c1"].append_records(records, format=CODEX)
    assert len(histories["c1"].view()) == 2
    assert histories["c1"].stats().events == {"user": 1, "condensation": 1}


# -- instructions, which each turn_context repeats
# ----------------------------------------------------------------------------------------


def turns(*instructions):
    """Return one turn for each of the instructions, as Codex writes it."""
    return [
        each
        for number, words in enumerate(instructions)
        for each in (
            context(words),
            *message_records(f"question {number}"),
            *message_records(f"answer {number}", role="assistant"),
        )
    ]


def shown_instructions(histories, records):
    histories["c1"].append_records([BASE, *records], format=CODEX)
    return [
        event.content
        for event in histories["c1"].view()
        if isinstance(event, SystemMessage) and "base" not in event.meta.values()
    ]


def test_repeated_instructions_are_shown_once(histories):
    records = [*message_records("<INSTRUCTIONS>Mind the gap</INSTRUCTIONS>")]
    assert shown_instructions(histories, [*records, *turns(*["Mind the gap"] * 60)]) == []


def test_changed_instructions_are_shown_once_each(histories):
    words = [*["Mind the gap"] * 40, *["Mind the step"] * 40, *["Mind the gap"] * 2]
    shown = shown_instructions(histories, turns(*words))
    assert shown == ["Mind the gap", "Mind the step", "Mind the gap"]


def test_instructions_of_a_turn_that_was_rolled_back_are_shown_again(histories):
    rolled_back = event_message("thread_rolled_back", num_turns=1)
    records = [*turns("Mind the gap", "Mind the gap"), context("Mind the step")]
    records += [*turns("Mind the step", "Mind the step")[1:], rolled_back, rolled_back, rolled_back]
    shown = shown_instructions(histories, [*records, *turns("Mind the step")])
    assert shown[-1] == "Mind the step"


# -- one record after the other
# ----------------------------------------------------------------------------------------


def event_message(type, **fields):
    return record("event_msg", {"type": type, **fields})


ABORTED = event_message("turn_aborted", reason="interrupted")


def append_one_by_one(histories, records, restarts):
    store = histories.store
    for number, row in enumerate(records):
        histories["c1"].append_records([row], format=CODEX)
        if number in restarts:
            histories = foldlog.Histories(store)
    return histories["c1"]


def context(instructions):
    return record("turn_context", {"cwd": "/", "user_instructions": instructions})


def session(instructions):
    return record("session_meta", {"id": "s1", "base_instructions": {"text": instructions}})


WORDS = st.sampled_from(["Be kind", "Ask first", "Be brief and ask first", "x"])
STEPS = st.one_of(
    WORDS.map(message_records),
    WORDS.map(lambda it: message_records(it, role="developer")),
    st.just(message_records("hello", role="assistant")),
    st.just(["call"]),
    st.just(["call"]),
    st.just(["output"]),
    st.just([ABORTED]),
    WORDS.map(lambda it: [context(it)]),
    WORDS.map(lambda it: [session(it)]),
    st.integers(1, 3).map(lambda turns: [event_message("thread_rolled_back", num_turns=turns)]),
    st.just([compacted("So far")]),
    WORDS.map(
        lambda it: [
            compacted("So far", text(it), text("So far"), text("Mind this", role="developer"))
        ]
    ),
    st.just([event_message("token_count", info={"total": 1})]),
    st.just(
        [record("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "g"})]
    ),
)


def rollout(steps):
    """Return the records of these steps: each call has an id of its own, each line of the session a
    time of its own, and an output is of any earlier call.
    """
    records = [BASE]
    calls = 0
    for number, step in enumerate(steps):
        for part in step:
            if part == "call":
                records.append(call(f"c{calls}"))
                calls += 1
            elif part == "output":
                records.append(output(f"c{max(0, calls - 1 - number % 3)}"))
            elif part["type"] == "session_meta":
                # with the same time it would be the same record, read twice
                records.append({**part, "timestamp": f"2026-02-17T09:00:00.{len(records):03}Z"})
            else:
                records.append(part)
    return records


@example([[session("x")], [session("x")]], {1})
@example([["call"], [compacted("So far")], ["call"]], {2})
@example(
    [["call"], message_records("x"), [event_message("thread_rolled_back", num_turns=1)], ["call"]],
    {3},
)
@given(st.lists(STEPS, max_size=30), st.frozensets(st.integers(0, 40)))
@examples(250)
def test_record_by_record_equals_the_whole_rollout(steps, restarts):
    records = rollout(steps)
    whole = list(decode(records, CODEX))
    with foldlog.open("memory:") as histories:
        history = append_one_by_one(histories, records, restarts)
        events = list(history.events())
        assert events == whole
        assert [(event.id, type(event)) for event in history.view()] == [
            (event.id, type(event)) for event in View.from_events(whole)
        ]


def test_repeated_end_adds_only_new_records(histories, tmp_path):
    """Records that come at the time of the newest one may be the same words, said twice."""
    log = [
        BASE,
        *(
            record("response_item", text(f"m{n}"), f"2026-02-17T09:00:0{n}.000Z")
            for n in range(1, 6)
        ),
    ]
    more = [record("response_item", text("m5"), "2026-02-17T09:00:09.000Z"), log[-1]]
    ends = [(log[-2:], 0), ([*log[-2:] * 2, more[0]], 1), (more, 1), (log[-1:], 1)]
    for number, (again, added) in enumerate(ends):
        read = []
        for name, lengths in (("whole", [None]), ("grown", [6, 7, None])):
            path = tmp_path / f"{name}{number}.jsonl"
            for length in lengths:
                write_lines(path, [*log, *again][:length])
                (history,) = histories.import_(path, conversation=path.stem)
            read.append([*history.events()])
            assert [event.content for event in history.view()][1:] == [
                "m1",
                "m2",
                "m3",
                "m4",
                "m5",
                *["m5"] * added,
            ]
        assert read[0] == read[1]


def test_own_events_outlive_forgotten_records(histories):
    history = histories["c1"]
    history.append_records([BASE, *message_records("a")], format=CODEX)
    history.append(said("ours"))
    history.append(
        CondensationAction(forgotten_event_ids=(1,), summary="a, in short", summary_offset=1)
    )
    history.append_records(
        [*message_records("b"), event_message("thread_rolled_back", num_turns=2)], format=CODEX
    )
    assert [event.content for event in history.view()] == ["You are", "a, in short", "ours"]
    history.append_records([compacted("all", text("all"))], format=CODEX)
    assert [event.content for event in history.view()] == ["You are", "all", "a, in short", "ours"]
    history.append_records([call("c0")], format=CODEX)
    history.append(CondensationAction(forgotten_event_ids=(1,)))
    history.append_records([call("c1"), compacted("all"), call("c2")], format=CODEX)
    first, second, third = (
        event.response_id for event in history.events() if isinstance(event, Action)
    )
    assert first == second != third


def page(name, first, *payloads, **session):
    """Return the lines of a file of a thread: each has a number, and the first ones of the next
    file go on with these.
    """
    lines = [
        record("session_meta", {"id": name, "history_mode": "paginated", **session}),
        *payloads,
    ]
    return [
        {
            **line,
            "timestamp": f"2026-09-01T09:{first:02}:{number:02}.000Z",
            "ordinal": first + number,
        }
        for number, line in enumerate(lines)
    ]


def based(thread, end):
    return {
        "history_base": {"thread_id": thread, "end_ordinal_exclusive": end, "end_byte_offset": 1}
    }


def spent(total):
    usage = {"input_tokens": total, "total_tokens": total}
    return event_message(
        "token_count",
        info={"total_token_usage": usage, "last_token_usage": {**usage, "input_tokens": 10}},
    )


PAGES = [
    page("t", 0, *message_records("q1"), *message_records("a1", role="assistant"), spent(10)),
    page("t", 4, *message_records("q2"), compacted("In short"), spent(20), **based("t", 4)),
    page("t", 5, *message_records("q3"), spent(21), **based("r2", 5)),
]


@pytest.mark.parametrize("restarts", [(), (4, 8), range(11)])
def test_record_by_record_equals_files_of_a_thread(restarts):
    records = [*PAGES[0], *PAGES[1], *PAGES[2]]
    with foldlog.open("memory:") as histories:
        events = list(append_one_by_one(histories, records, restarts).events())
    assert events == list(decode(records, CODEX))


@given(st.lists(STEPS, max_size=30))
@examples(250)
def test_skeleton_counts_condensations_and_retractions(steps):
    skeleton = CodexSkeleton()
    records = rollout(steps)
    for body in map(json_of, records):
        skeleton.add(body, sha256(body).digest()[:HASH_BYTES])
    kinds = [type(event) for event in decode(records, CODEX)]
    assert skeleton.state.compactions == kinds.count(CondensationAction)
    assert skeleton.state.kinds.get("retraction", 0) == kinds.count(Retraction)


@pytest.mark.parametrize(
    "output, is_error",
    [
        ("failed in sandbox None with execution error: command timed out", True),
        ("failed in sandbox MacosSeatbelt with execution error: exec error, exit code: 2", True),
        ("apply_patch verification failed: Failed to find expected lines in /w/a.py:", True),
        ("error: invalid hunk at line 4, the line begins with no sign", True),
        ('error: Failed to find expected lines ["import os"] in a.py', True),
        ("failed to parse function arguments: missing field `command` at line 1", True),
        ("error: Failed to read file to update /w/a.py: No such file", True),
        ("unsupported call: assistant", True),
        ("Plan updated", False),
        ("error: of the tide is 3 cm", False),
        ("notes on unsupported calls", False),
    ],
)
def test_what_codex_writes_in_place_of_an_output_is_an_error(output, is_error):
    call = item("function_call", name="shell", arguments="{}", call_id="c")
    answer = item("function_call_output", call_id="c", output=output)
    _, event = decode([call, answer], format=CODEX)
    assert event.is_error == is_error
