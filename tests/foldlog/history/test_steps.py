"""Steps of a history: what the author of a runtime calls before each call of the agent's model."""

import subprocess
import sys

import anyio
import pytest

import foldlog
from foldlog import Action, Condensation, CondensationAction, Message, Observation, View, aio
from foldlog.condensers import (
    Condenser,
    NoOpCondenser,
    RecentEventsCondenser,
    get_condensation_metadata,
)
from foldlog.condensers.reports import annotation, reports_of
from foldlog.eventstore import Annotation, CondensationRequest
from tests.condensers.scripted import Characters
from tests.said import by_turns, ids, replied, said

DIGEST = {"type": "digest", "max_size": 8, "keep_first": 1}


@pytest.fixture
def opened(tmp_path):
    """``opened(condenser=…)``: the histories of one file, each time with another condenser."""
    histories = []

    def open_(**how):
        histories.append(foldlog.open(f"sqlite:///{tmp_path}/history.db", **how))
        return histories[-1]

    yield open_
    for history in histories:
        history.close()


@pytest.fixture
def full(opened):
    """A history that its next step condenses."""
    condenser = {"type": "amortized_forgetting", "max_size": 4, "keep_first": 0}
    history = opened(condenser=condenser)["c1"]
    history.append([said("go"), *[replied("on")] * 9])
    return history


def call_and_result(number):
    """Return the call of an agent that becomes event ``number``, and its result."""
    return [
        Action(tool="run", arguments={"command": f"step {number}"}, call_id=f"c{number}"),
        Observation(tool="run", call_id=f"c{number}", cause=number, content="done"),
    ]


def work(turns):
    """Return the wish of a user, and a call with its result for each turn."""
    events = [said("mend the parser")]
    for _ in range(turns):
        events += call_and_result(len(events))
    return events


def kinds(history):
    return [type(event) for event in history.events()]


def test_view_of_a_long_loop_stays_small(opened):
    history = opened(condenser=DIGEST)["c1"]
    history.append(work(0))
    sizes = []
    for _ in range(40):
        match history.step():
            case Condensation(action=action):
                assert action.id == history.version() - 1
                continue
            case View() as view:
                sizes.append(len(view.to_messages()))
        history.append(call_and_result(history.version()))
    assert max(sizes) <= 8
    assert kinds(history).count(Action) == len(sizes)
    condensations = kinds(history).count(CondensationAction)
    assert condensations == 40 - len(sizes)
    assert condensations > 3


def test_condenser_by_name_file_table_or_object(opened, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[condenser]\ntype = "recent_events"\nkeep_first = 1\nmax_events = 3\n')
    table = {"type": "recent_events", "keep_first": 1, "max_events": 3}
    for place, chosen in enumerate(
        (file, str(file), table, RecentEventsCondenser(keep_first=1, max_events=3))
    ):
        history = opened(condenser=chosen)[f"c{place}"]
        history.append(by_turns(9))
        assert ids(history.step()) == [0, 7, 8]
        assert len(history.view()) == 9
    assert opened(condenser="digest").condenser.type == "digest"


def test_digest_answers_requests_by_default(opened):
    history = opened()["c1"]
    history.append(work(20))
    condensation = history.condense("the window is full")
    assert isinstance(condensation, Condensation)
    assert condensation.action.metadata["condenser"] == "digest"
    assert condensation.action.summary.startswith("# Digest of")
    (request,) = (event for event in history.events() if isinstance(event, CondensationRequest))
    assert request.reason == "the window is full"
    assert len(history.view()) < 41
    assert not history.view().unhandled_condensation_request


def test_condensing_appends_one_request_and_takes_one_step(opened):
    calls = []

    class Forgets(Condenser):
        type = "forgets"

        def handles_condensation_requests(self):
            return True

        def condense(self, view, agent_llm=None):
            calls.append((view.unhandled_condensation_request, agent_llm))
            return Condensation(CondensationAction(forgotten_event_ids=[view[0].id]))

    agent = Characters()
    history = opened(condenser=Forgets(), agent_llm=agent)["c1"]
    history.append([Message(source=source, content=source) for source in ("user", "user", "agent")])
    assert isinstance(history.condense(), Condensation)
    assert calls == [(True, agent)]
    assert kinds(history)[3:] == [CondensationRequest, CondensationAction]
    assert ids(history.view()) == [1, 2]


def test_condenser_without_requests_is_not_asked(opened):
    for condenser in (
        NoOpCondenser(),
        {"type": "pipeline", "condensers": [{"type": "recent_events"}]},
    ):
        history = opened(condenser=condenser)["c1"]
        if not len(history):
            history.append(work(3))
        with pytest.raises(
            ValueError,
            match=r"Cannot condense conversation: the condenser '(noop|pipeline)' does not",
        ):
            history.condense()
        assert history.version() == 7


def test_masks_are_reported_in_the_history(opened):
    histories = opened(condenser={"type": "observation_masking", "attention_window": 1})
    history = histories["c1"]
    history.append(work(3))
    view = histories.condenser.condensed_history(history)
    assert [event.content for event in view if isinstance(event, Observation)] == [
        "<MASKED>",
        "<MASKED>",
        "done",
    ]
    assert kinds(history)[7:] == [Annotation]
    assert [batch["masked"] for batch in get_condensation_metadata(history)] == [2]


def test_appending_imports_no_condenser():
    script = """
import sys
import foldlog
with foldlog.open("memory:") as histories:
    histories["c1"].append(foldlog.Message(source="user", content="hi"))
    histories["c1"].view().to_messages()
    assert not [name for name in sys.modules if name.startswith("foldlog.condensers")], "before the first step"
    histories["c1"].step()
    assert not {"pydantic", "litellm", "foldlog.condensers.models.client"} & set(sys.modules), "imported"
"""
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    "condenser",
    [
        {"type": "amortized_forgetting", "max_size": 20},
        {"type": "recent_events", "max_events": 10},
        {"type": "observation_masking", "attention_window": 1},
        {"type": "pipeline", "condensers": [{"type": "recent_events", "max_events": 10}, DIGEST]},
    ],
    ids=lambda config: config["type"],
)
def test_late_events_are_shown_to_the_model(opened, condenser):
    histories = opened(condenser=condenser)
    others = opened()
    history = histories["c1"]
    shows_stop = []
    history.append(said("go"))
    calls = [{"type": "function", "function": {"name": "run", "arguments": "{}"}} for _ in range(8)]
    for turn in range(4):
        shows_stop.append("stop" in str(history.prepare().to_messages()))
        if turn == 1:
            late = others["c1"].append(said("stop"))
            others["c1"].append(Observation(tool="t", call_id="x", content="late"))
        reply = {
            "role": "assistant",
            "tool_calls": [call | {"id": f"{turn}-{n}"} for n, call in enumerate(calls)],
        }
        recorded = history.append_reply(reply, idempotency_key=f"turn {turn}")
        repeated = others["c1"].append_reply(reply, idempotency_key=f"turn {turn}")
        assert repeated[0] == recorded[0]
        for call in history.open_calls():
            history.append_tool_result(call, "done")
    assert shows_stop[:3] == [False, False, True]
    assert [event.id for event in history.events() if "shown_version" in event.meta] == [
        late[0].id + 2
    ]


def test_unanswered_events_survive_failure_and_redaction(full, opened, monkeypatch):
    history = full
    reply = {"role": "assistant"}
    asked_at = history.prepare().version
    late = opened()["c1"].append(said("stop"))[0].event
    monkeypatch.setattr(history._store, "append", unavailable)
    with pytest.raises(foldlog.StoreUnavailable):
        history.append_reply(reply | {"content": "secret"})
    monkeypatch.undo()
    recorded = history.append_reply(reply | {"content": "secret"}, idempotency_key="1")
    history.redact(recorded[0].event, reason="a secret")
    assert next(history.events(recorded[0].event.id)).meta == {"shown_version": asked_at}
    history.append_reply(reply | {"content": "secret"}, idempotency_key="1")
    assert late in history.prepare()


REPLIES = {
    "append": lambda history, reply: history.append(reply),
    "append of events": lambda history, reply: history.append(foldlog.from_openai(reply)),
    "append behind others": lambda history, reply: history.append(
        [{"role": "user", "content": "now"}, reply]
    ),
    "append at a version": lambda history, reply: history.append(
        reply, expected_version=history.version()
    ),
    "append with documents": lambda history, reply: history.append(reply, documents={"state": 1}),
    "append_reply": lambda history, reply: history.append_reply(reply),
    "append_records": lambda history, reply: history.append_records([reply], format="openai-chat"),
    "append with a second attempt": lambda history, reply: append_with_a_second_attempt(
        history, reply
    ),
    "async": lambda history, reply: anyio.run(in_async, history, foldlog.from_openai(reply)),
}


def append_with_a_second_attempt(history, reply):
    """Append a reply. If another writer was first, a further message is appended before the second
    attempt.
    """
    append = history._store.append

    def meet_another(*arguments, **how):
        history._store.append = append
        try:
            return append(*arguments, **how)
        except foldlog.VersionConflict:
            history.append(replied("on"))
            raise

    history._store.append = meet_another
    history.append(reply)


async def in_async(history, events):
    face = aio.face_of(history._histories)[history.id]
    face.sync = history
    await face.append([*events])


@pytest.mark.parametrize("way", REPLIES)
@pytest.mark.parametrize("others", [True, False])
def test_late_events_are_not_forgotten(full, opened, way, others):
    history = full
    asked_at = history.prepare().version
    late = opened()["c1"].append(said("stop"))[0].event if others else None
    REPLIES[way](history, {"role": "assistant", "content": "done"})
    newest = next(event for event in history.events(reverse=True) if isinstance(event, Message))
    assert newest.meta.get("shown_version") == (asked_at if others else None)
    assert late is None or late in history.prepare()


def test_redacted_report_does_not_end_the_rules(opened):
    history = opened(condenser={"type": "recent_events", "max_events": 6})["c1"]
    history.append(work(5))
    shown = history.prepare()
    failed = [{"failure": "a secret", "metrics": {"cost": 0.5}, "reply_text": "a secret"}]
    history.redact(history.append(annotation(failed))[0].event, reason="a secret")
    assert ids(history.sent()) == ids(shown)
    empty = []
    history.redact(history.append(annotation(empty))[0].event, reason="a secret")
    assert ids(history.sent()) != ids(shown)
    assert [reports_of(event) for event in history.events(shown.version) if event.redacted] == [
        [{"metrics": {"cost": 0.5}}],
        [],
    ]


def unavailable(*arguments, **how):
    raise foldlog.StoreUnavailable("the disk is full", kind="full")


def test_wrong_shown_version_is_ignored(full):
    full.append(replied("on", meta={"shown_version": "none"}))
    assert len(full.prepare()) <= 4
