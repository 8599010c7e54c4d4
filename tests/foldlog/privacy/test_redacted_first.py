"""Content that was read before a redaction and appended after it. If the redacted event is in the
shared past of a fork, the redaction does not change the fork's version.
"""

from functools import partial

import pytest

from foldlog import Histories
from foldlog._app.cli import record_files
from foldlog._history.effects import EffectRule
from foldlog._imports.making_events import change_of_documents
from foldlog._privacy.matching import holding, keep_documents
from foldlog.adapters._records.openhands_files import EventFiles
from foldlog.adapters._shared import cached_values
from foldlog.eventstore import Action, Documents, Store, VersionConflict, open_store
from foldlog.eventstore.documents import changes
from foldlog.eventstore.files.written_files import note_file
from foldlog.runtimes import CachedValues, RuntimeCall
from tests.between import at_each_moment, before_next_call
from tests.said import said


@pytest.fixture
def parent(histories):
    return begin(histories["parent"])


def begin(history):
    """Append events. Event 1 has the word "marigold" as the value of two documents."""
    history.append(said("hi"))
    history.append((), documents={"attributes": {"flower": "marigold"}, "note": "marigold"})
    history.append([said("one"), said("two")])
    return history


@pytest.fixture
def redacted_before(parent, monkeypatch):
    """Have event 1 redacted when a method is called for the first time, just before the call."""
    redact = partial(parent.redact, 1, reason="asked to")
    return lambda owner, name: before_next_call(monkeypatch, owner, name, redact)


def fill(histories):
    """A fork of a history with a flower in its documents, and in a call that ran. The history takes
    the outcome back, which is event 6.
    """
    parent = begin(histories["parent"])
    parent.append(Action(source="agent", tool="pay", call_id="c", arguments={"to": "marigold"}))
    run_again(parent)
    parent.fork(id="fork")
    parent.retract(6)


def run_again(history):
    with history.lease():
        history.run(*history.open_calls(), lambda to: f"paid {to}")


def settle(history):
    history.close_open_calls()
    history.settle(history.effects()[0].key, "it is paid")


ATTEMPTS = {
    "attributes": ("fork", lambda fork: fork.set_attributes(color="blue"), 1),
    "the notice of a retraction": ("fork", lambda fork: fork.retract(4), [4, 6]),
    "an outcome that is recorded again": ("parent", run_again, 6),
    "a late outcome": ("parent", settle, 4),
}


@pytest.mark.parametrize("name, attempt, redacted", ATTEMPTS.values(), ids=ATTEMPTS)
def test_append_does_not_repeat_redacted_content(name, attempt, redacted):
    versions = []

    def redact(histories):
        versions.append(histories[name].version())
        histories["parent"].redact(redacted, reason="asked to")

    def attempted(histories):
        return attempt(histories[name])

    for histories, outcome in at_each_moment(fill, redact, attempted):
        assert not isinstance(outcome, Exception)
        assert "marigold" not in repr([*histories[name].events(versions[-1])])


APPENDS = {
    "append": lambda fork, seen: fork.append(said("marigold"), expected_version=seen),
    "append_reply": lambda fork, seen: fork.append_reply(
        {"role": "assistant", "content": "marigold"}, expected_version=seen
    ),
    "append_records": lambda fork, seen: fork.append_records(
        [{"role": "user", "content": "marigold"}], format="openai-chat", expected_version=seen
    ),
    "retract": lambda fork, seen: fork.retract(2, expected_version=seen),
}


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_an_append_to_what_a_view_showed_before_a_redaction_is_refused(parent, append):
    fork = parent.fork()
    seen = fork.view().seen
    append(fork, seen)

    again = parent.fork()
    outdated = again.view().seen
    parent.redact(2, reason="asked to")
    with pytest.raises(VersionConflict):
        append(again, outdated)
    assert again.version() == outdated.version


def test_a_retraction_of_another_version_is_refused(parent):
    call = parent.append(Action(source="agent", tool="pay", call_id="c"))
    with parent.lease():
        parent.run(call[0].event, lambda: "paid")
    with pytest.raises(VersionConflict):
        parent.retract(4, expected_version=5)


def test_answer_quotes_no_redacted_call(histories, parent):
    attempts = [
        RuntimeCall(histories, parent.id, call_id, "pay", {"to": f"marigold {call_id}"}, None, {})
        for call_id in ("a", "b")
    ]
    intents = []
    for attempt in attempts:
        attempt.begin(EffectRule())
        intents.append(parent.version() - 1)
    restarted = Histories(histories.store)
    again = RuntimeCall(restarted, parent.id, "a", "pay", {"to": "marigold a"}, None, {})
    assert "marigold a" in again.begin(EffectRule())[1]
    parent.redact(intents[1], reason="asked to")
    answer = RuntimeCall(restarted, parent.id, "c", "pay", {}, None, {}).begin(EffectRule())[1]
    assert "unknown: pay {} may have run" in answer


def test_no_cached_value_is_made_from_a_redacted_one(histories, parent, monkeypatch):
    assert [*cached_values(histories, "test", "paren", lambda row, before: "marigold")] != []
    parent.append(said("three"))
    below = CachedValues.below

    def read_and_redact(beside, start):
        paths = [*below(beside, start)]
        parent.redact(1, reason="asked to")
        return paths

    monkeypatch.setattr(CachedValues, "below", read_and_redact)
    assert [*cached_values(histories, "test", "paren", lambda row, before: before)] == []


def test_a_redaction_reaches_a_file_of_openhands_that_was_read(parent):
    texts = ("hi", "tulip", "marigold")
    records = [
        {
            "id": f"e{number}",
            "timestamp": f"2026-01-05T09:00:0{number}",
            "source": "user",
            "llm_message": {"role": "user", "content": [{"type": "text", "text": text}]},
            "kind": "MessageEvent",
        }
        for number, text in enumerate(texts)
    ]
    recorded = parent.append_records(records, format="openhands-v1")
    fork = parent.fork()
    files = EventFiles(fork)
    parent.redact(recorded[1].id, reason="asked to")
    assert "marigold" in files.text("e2")
    parent.redact(recorded[2].id, reason="asked to")
    assert "marigold" not in files.text("e2")


def test_redaction_of_matches_keeps_no_document_that_was_redacted_meanwhile(
    histories, parent, redacted_before
):
    fork = parent.fork(3, "fork")
    redacted_before(Store, "append")
    keep_documents(histories.store, "fork", {1}, holding("tulip"))
    assert (fork.document("note"), fork.attributes()) == ("[redacted]", {})


def test_fork_of_a_history_that_lacks_records_repeats_no_redacted_document(parent, redacted_before):
    parent.append((), documents={"unread records": [[2, 2]]})
    redacted_before(Documents, "fork")
    fork = parent.fork(3, "fork")
    assert fork.attributes().keys() == {"incomplete"}
    with pytest.raises(VersionConflict):
        parent.fork(3, "fork")


def test_fork_that_lacks_records_needs_no_attributes(histories):
    histories["c"].append(said("tulip"))
    histories["c"].append((), documents={"unread records": [[0, 0]]})
    assert histories["c"].fork(1, "fork").attributes().keys() == {"incomplete"}


def test_fork_with_new_values_of_redacted_documents_is_refused(histories, parent, redacted_before):
    redacted_before(changes, "prepare_append")
    with pytest.raises(VersionConflict):
        Documents(histories.store).fork("parent", 3, "fork", {"note": "marigold, or rose"})
    assert "fork" not in histories


def test_import_repeats_no_redacted_attributes(histories, parent):
    fork = parent.fork(3, "fork")
    change, seen, _ = change_of_documents(histories.store, "fork", {}, {"color": "blue"})
    assert change.changed["attributes"]["value"] == {"flower": "marigold", "color": "blue"}
    parent.redact(1, reason="asked to")
    with pytest.raises(VersionConflict):
        histories.store.extend("fork", [change], expected_version=seen, also=lambda _: None)
    assert fork.version() == 3


def test_export_writes_no_event_that_was_redacted_meanwhile(foldlog, tmp_path, monkeypatch):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("c", said("marigold"), expected_version=0)

    def redact_and_note(store, *about):
        Histories(store)["c"].redact(0, reason="asked to")
        return note_file(store, *about)

    monkeypatch.setattr(record_files, "note_file", redact_and_note)
    assert foldlog("export c --view -o out.jsonl").status == 0
    assert "[redacted]" in (tmp_path / "out.jsonl").read_text()


def test_file_written_after_an_erasure_is_not_named(histories, tmp_path):
    def unconfirmed_of_c():
        return histories.store.conversation("c").unconfirmed

    def write():
        with note_file(histories.store, "export", path):
            path.touch()

    path = tmp_path / "out.jsonl"
    histories["c"].append(said("tulip"))
    write()
    histories.erase("c", reason="asked to")
    assert unconfirmed_of_c() == (f"export {path}",)
    write()
    assert unconfirmed_of_c() == ()
