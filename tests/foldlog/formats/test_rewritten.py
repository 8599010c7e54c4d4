"""A source that its program writes again: the store has the records that stand, and the View is that of the source."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

import foldlog as api
from foldlog._formats.files.found import Found
from foldlog._formats.files.naming import Name
from foldlog._formats.files.readers import Placed
from foldlog._formats.record import at as located_at
from foldlog._formats.registry import FORMATS
from foldlog._formats.rewritten import WRITTEN_AGAIN, is_rewriting, standing_in
from foldlog._formats.sources import Source
from foldlog._importing import import_source
from foldlog._reports import overview
from foldlog._reports.overview import is_activity, near_the_ends
from foldlog._reports.sums import KeptSums
from foldlog._seen_files import SeenFiles
from foldlog.eventstore import CondensationAction, HistoryDiverged, Message, Origin, Retraction, open_store
from foldlog.eventstore.maintenance.redact import redact
from foldlog.formats import decode, encode
from foldlog.projections import View
from tests.foldlog.records import records_of
from tests.how_many import examples, some

REWRITTEN = [name for name, format in FORMATS.items() if format.rewritten]
RECORDS = {name: records_of(name) for name in REWRITTEN}


def written_again(at, records, corpus):
    """The records with some that are gone, changed, or new."""
    changed = list(records[: at.randrange(len(records) + 1)] if at.randrange(3) == 0 else records)
    for _ in range(at.randrange(3)):
        place = at.randrange(len(changed) + 1)
        match at.randrange(3):
            case 0:
                changed[place : place + 1] = []
            case 1:
                changed.insert(place, at.choice(corpus))
            case _:
                changed[place : place + 1] = [at.choice(corpus)]
    return changed + at.choices(corpus, k=at.randrange(3))


def source(name, records, damaged_at=None, path=Path("a.jsonl")):
    rows = [located_at("a.jsonl", each) for each in records]
    if damaged_at is not None:
        rows[damaged_at] = located_at("a.jsonl", None, "damaged")
    return Source(Found(Name("c"), FORMATS[name], path, Placed(0, lambda: iter(rows))))


def shown(events):
    """What a View holds, without ids of ours."""
    held = ("content", "thought", "tool", "arguments", "is_error")
    return [(type(event), *(getattr(event, name, None) for name in held)) for event in View.from_events(events)]


def figures(store):
    """What is counted of a history."""
    row = store.conversation("c")
    (_, one), *_ = KeptSums(store).of([row])
    assert one.counts.findings == []
    last = near_the_ends(store, row).last_event_at, one.overview.last_event_at
    return asdict(one.counts), sorted(map(repr, one.calls)), sorted(one.replies), last


def test_the_end_of_what_was_taken_back_is_looked_for_once(monkeypatch):
    looked, origin = [], Origin(format="gemini-cli")
    reason = "the source was rewritten"
    monkeypatch.setattr(overview, "is_activity", lambda event: looked.append(event.id) or is_activity(event))
    with open_store("memory:") as store:
        said = [Message(source="user", content="x", origin=origin)] * 600
        store.ingest("c", [*said, Retraction(version=1, reason=reason, origin=origin)])
        assert near_the_ends(store, store.conversation("c")).last_event_at is None
        assert len(looked) <= 2 * 601


@given(
    st.sampled_from([name for name in REWRITTEN if FORMATS[name].joins is None]),
    st.integers(0, 2**32).map(random.Random),
)
@examples(200)
def test_the_store_and_its_figures_follow_its_source(name, at):
    corpus = RECORDS[name]
    records = corpus[: at.randrange(1, len(corpus))]
    with open_store("memory:") as store:
        import_source(store, source(name, records))
        for _ in range(3):
            changed = written_again(at, records, corpus)
            records = records if import_source(store, source(name, changed)).is_older else changed
            events = list(store.events("c"))
            assert list(encode(events, name)) == records
            assert shown(events) == shown(list(decode(records, name)))
            with open_store("memory:") as fresh:
                if import_source(fresh, source(name, records)).version:
                    assert figures(store) == figures(fresh)
            assert import_source(store, source(name, records)).added == 0


@pytest.mark.parametrize("gone, kept, stands", [(None, WRITTEN_AGAIN, False), (WRITTEN_AGAIN, None, True)])
def test_what_an_event_was_taken_back_by_is_what_its_source_still_tells(gone, kept, stands):
    origin = Origin(format="gemini-cli")
    steps = (0, gone), (1, "the source was rewritten"), (0, kept), (0, WRITTEN_AGAIN)
    retractions = [
        Retraction(id=id, version=version, reason=reason, origin=origin)
        for id, (version, reason) in enumerate(steps, start=1)
    ]
    assert standing_in(retractions, 5)(Message(id=0, source="user", content="x", origin=origin)) is stands


def chatgpt(texts, changed):
    """A conversation of an export, with these messages and the time of its last change."""
    names = [f"n{number}" for number in range(len(texts))]
    nodes = {
        name: {"id": name, "parent": above, "message": {"author": {"role": "user"}, "content": {"parts": [text]}}}
        for above, name, text in zip([None, *names], names, texts, strict=False)
    }
    return [{"conversation_id": "ses_c", "current_node": names[-1], "update_time": changed, "mapping": nodes}]


def claude_ai(texts, changed):
    messages = [{"uuid": f"n{place}", "sender": "human", "text": text} for place, text in enumerate(texts)]
    times = {"updated_at": f"2026-01-01T00:00:0{changed}Z", "account": {"uuid": "a"}}
    return [{"uuid": "ses_c", "name": "t", **times, "chat_messages": messages}]


def gemini_cli(texts, changed):
    messages = [
        {"id": f"n{place}", "type": "user", "timestamp": "2026-01-01T00:00:00Z", "content": text}
        for place, text in enumerate(texts)
    ]
    times = {"startTime": "2026-01-01T00:00:00Z", "lastUpdated": f"2026-01-01T00:00:0{changed}Z"}
    return {"sessionId": "ses_c", "projectHash": "h", **times, "messages": messages}


def opencode(texts, changed):
    messages = [
        {"info": {"id": f"n{place}", "sessionID": "ses_c", "role": "user"}, "parts": [{"type": "text", "text": text}]}
        for place, text in enumerate(texts)
    ]
    return {"info": {"id": "ses_c", "projectID": "p", "time": {"updated": changed}}, "messages": messages}


def atif(texts, changed):
    steps = [{"step_id": number, "source": "user", "message": text} for number, text in enumerate(texts, 1)]
    return {"schema_version": "ATIF-v1.5", "session_id": "ses_c", "steps": steps}


@pytest.mark.parametrize("written", [chatgpt, claude_ai, gemini_cli, opencode, atif])
def test_an_older_copy_of_a_source_takes_nothing_back_where_the_source_tells_when_it_was_changed(
    written, tmp_path, foldlog
):
    def imported(texts, changed):
        (tmp_path / "c.json").write_text(json.dumps(written(texts, changed)))
        (one,) = foldlog("import", "c.json", "--json").document["imported"]
        assert (one["conversation"], one["findings_count"]) == ("ses_c", 0)
        shown = json.dumps(foldlog("export", "ses_c", "--format", "openai-chat").out)
        return one, "".join(text for text in ("one", "two", "three", "four") if text in shown)

    def told(texts, changed):
        (tmp_path / "c.json").write_text(json.dumps(written(texts, changed)))
        return foldlog("import", "c.json").out.splitlines()[0].partition(": ")[2]

    first, _ = imported(["one", "two", "three"], 5)
    older, shown = imported(["one", "two"], 4)
    if written is atif:  # it does not tell
        assert (older["taken_back"], older["older"], shown) == (1, False, "onetwo")
        assert told(["one"], 3).startswith("1 new event in place of 1 taken back, ")
        return
    assert (older["added"], older["taken_back"], older["older"]) == (0, 0, True)
    assert (older["version"], shown) == (first["version"], "onetwothree")
    assert told(["one"], 3) == f"nothing new (older than what was imported), {first['version']} events as before"
    assert imported(["one", "two", "four"], 6)[1] == "onetwofour"
    foldlog("redact", "ses_c", "--matching", "two", "--reason", "asked to", "--yes")
    assert told(["one", "two"], 4).startswith("nothing new (older than what was imported), ")
    shown = foldlog("export", "ses_c", "--format", "openai-chat").out
    assert [text for text in ("one", "two", "four") if text in shown] == ["one", "four"]


def test_a_source_that_was_changed_at_a_time_to_come_grows(tmp_path, foldlog):
    for texts, changed in ((["one"], 32_503_680_000), (["one", "two"], 1_750_000_000), (["one"], 1_700_000_000)):
        (tmp_path / "c.json").write_text(json.dumps(chatgpt(texts, changed)))
        (one,) = foldlog("import", "c.json", "--json").document["imported"]
        assert one["older"] == (changed == 1_700_000_000)
    shown = foldlog("export", "ses_c", "--format", "openai-chat").out
    assert [text for text in ("one", "two") if text in shown] == ["one", "two"]


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_redacted_event_does_not_come_back(name):
    records = RECORDS[name]
    half = records[: len(records) // 2]
    changed = [*half[:-1], records[-1]]
    with open_store("memory:") as store:
        import_source(store, source(name, half))
        first = next(event for event in store.events("c") if getattr(event, "content", ""))
        redact(store, "c", first.id, reason="asked for", by="me")
        version = store.version("c")
        assert import_source(store, source(name, changed)).added > 0
        assert import_source(store, source(name, changed)).added == 0
        assert all(getattr(each, "content", "") != first.content for each in store.events("c", version))
    for event, is_taken_back in some(product(decode(half, name), (False, True)), 7):
        with open_store("memory:") as store:
            import_source(store, source(name, half))
            if not getattr(event, "content", "") or not event.shown:
                continue
            if is_taken_back:
                import_source(store, source(name, [*half[:1], records[-1]]))
            redact(store, "c", event.id, reason="asked for", by="me")
            version = store.version("c")
            with suppress(HistoryDiverged):
                import_source(store, source(name, half if is_taken_back else [*half[:1], *half[2:]]))
            there = [each.id for each in store.events("c") if getattr(each, "content", "") == event.content]
            assert all(each < version for each in there)


CHANGES = {
    "attributes": lambda history: history.set_attributes(about="sales"),
    "fork": lambda history: history.fork(3),
    "redact": lambda history: history.redact(next(each for each in history.view() if each.content), reason="asked for"),
    "retract the newest": lambda history: history.retract(history.version() - 1),
    "retract half": lambda history: history.retract(history.version() // 2),
    "condense": lambda history: history.append(CondensationAction(forgotten_event_ids=(history.view()[0].id,))),
    "append": lambda history: history.append(Message(content="mine", source="user")),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", REWRITTEN)
def test_a_source_grows_after_its_conversation_was_changed(name, change):
    records = RECORDS[name]
    half, more = records[: len(records) // 2], records[: len(records) * 3 // 4]
    written = [more, records] if FORMATS[name].joins else [[*half[:-1], *more[len(half) :]], more, records, half]
    with api.open("memory:") as histories:
        if not FORMATS[name].joins:
            import_source(histories.store, source(name, [*half[:-2], half[-1]]))
        at = import_source(histories.store, source(name, half)).version
        history = histories["c"]
        CHANGES[change](history)
        version, is_fork = history.version(), change not in ("attributes", "fork", "redact")
        assert import_source(histories.store, source(name, half)).added == 0
        for now in written:
            one = import_source(histories.store, source(name, now))
            assert (one.conversation, one.is_fork) == (f"c@{at}" if is_fork else "c", is_fork)
            assert (one.added == 0) == one.is_older
            assert import_source(histories.store, source(name, now)).added == 0
            if one.is_older:
                continue
            grown = histories[one.conversation]
            assert len([*grown.export(name)]) == len(now)
            if change != "redact":
                assert [*grown.export(name)] == now
                assert shown(grown.events()) == shown(decode(now, name))
        assert not is_fork or history.version() == version


@pytest.mark.parametrize("name, live, old", [(name, *"abba"[n % 2 * 2 :][:2]) for n, name in enumerate(REWRITTEN)])
def test_another_file_of_a_source_that_grows_in_a_fork_changes_nothing(name, live, old, tmp_path):
    records = RECORDS[name]
    part = len(records) // 3
    begun, copy = records[: 2 * part], records[:part]
    if FORMATS[name].joins:  # one of its files
        copy = begun[part:]
    with open_store("memory:") as store:
        imported(store, tmp_path, name, **{live: begun})
        imported(store, tmp_path, name, **{live: begun, old: copy})
        store.append("c", Retraction(version=1), expected_version=store.version("c"))
        for now in (begun, records):
            imported(store, tmp_path, name, **{live: now})
            files = {live: now, old: copy}
            outcomes = imported(store, tmp_path, name, **{each: files[each] for each in sorted(files)})
            assert [getattr(each, "added", each) for each in outcomes] == [0, 0]
        (fork,) = (row.id for row in store.iter_conversations() if row.id != "c")
        assert list(encode(store.events(fork), name)) == records


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_redaction_takes_what_an_import_took_back_of_the_same_record(name):
    records = RECORDS[name]
    with api.open("memory:") as histories:
        import_source(histories.store, source(name, records))
        import_source(histories.store, source(name, [*records[:1], *records[2:], records[-1], records[-1]]))
        history = histories["c"]
        said = [event for event in history.view() if len(getattr(event, "content", "")) > 8 and event.origin]
        for event in said[-3:]:
            was = [each.id for each in history.events() if getattr(each, "content", "") == event.content]
            stand = {each.id for each in history.view() if getattr(each, "content", "") == event.content}
            receipt = history.redact(event, reason="asked for")
            assert {*receipt.event_ids} == {*was} - stand | {event.id}
            redacted = {each.id for each in history.events() if each.redacted and not each.redacted.record}
            assert redacted.issuperset(receipt.event_ids)
        assert any(is_rewriting(each) for each in history.events()) == (FORMATS[name].joins is None)


def imported(store, folder, name, **files):
    """Import files, by their names, as one import of their folder does. Return what became of each."""
    seen = SeenFiles(store, below=[folder])
    outcomes = []
    for file, records in files.items():
        (folder / file).touch()
        try:
            one = import_source(store, given := source(name, records, path=folder / file), seen=seen)
        except HistoryDiverged as error:
            outcomes.append(error)
        else:
            seen.imported(given, one)
            outcomes.append(one)
    seen.close_file()
    seen.flush()
    return outcomes


@pytest.mark.parametrize("name, live, old", [(name, *"abba"[n % 2 * 2 :][:2]) for n, name in enumerate(FORMATS)])
def test_an_older_copy_takes_nothing_back_whatever_its_name_and_place(name, live, old, tmp_path):
    records = records_of(name)
    records, part = records[:60], len(records[:60]) // 3
    with open_store("memory:") as store, open_store("memory:") as alone:
        for now in (records[: 2 * part], records[: 2 * part], records, records):
            files = {live: now, old: records[:part]}
            for given in (store, alone):
                outcomes = imported(given, tmp_path, name, **{each: files[each] for each in sorted(files)})
            outcomes += imported(store, tmp_path, name, **{live: now})
            outcomes += imported(store, tmp_path, name, **{old: records[:part]})
            assert not any(isinstance(each, Exception) for each in outcomes)
            assert list(encode(store.events("c"), name)) == list(encode(alone.events("c"), name)) == now
        assert not any(map(is_rewriting, store.events("c")))


def test_of_two_files_that_differ_the_first_stays_and_the_other_is_named(tmp_path, foldlog):
    records = RECORDS["copilot-cli"]
    for name, those in (("a", records), ("b", [*records[:5], *records[20:30]]), ("c", records), ("d", records[:5])):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in those))
    for options in ((".",), ("a.jsonl",), (".",), ("c.jsonl", "b.jsonl"), (".", "--check")):
        done = foldlog("import", *options)
        assert (done.status, done.err.count("found: ")) == ((0, 0) if options == ("a.jsonl",) else (1, 1))
        assert done.status == 0 or "b.jsonl: conversation 'c-1' is in " in done.err
    findings = []
    with api.open(tmp_path / "foldlog.db") as histories:
        assert [each.id for each in histories.import_(tmp_path, findings=findings.append)] == ["c-1"]
    with open_store(f"sqlite:///{tmp_path / 'foldlog.db'}") as store:
        assert list(encode(store.events("c-1"), "copilot-cli")) == records
        assert not any(map(is_rewriting, store.events("c-1")))
    assert ["b.jsonl" in each for each in findings] == [True]
    (tmp_path / "a.jsonl").unlink()  # then b follows the file that is there, and alone it is imported
    assert foldlog("import", "b.jsonl").out.startswith("c-1 (copilot-cli): ")
    with open_store(f"sqlite:///{tmp_path / 'foldlog.db'}") as store:
        assert list(encode(store.events("c-1"), "copilot-cli")) == [*records[:5], *records[20:30]]


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_stored_stands_in_the_place_of_what_is_damaged(name):
    records = records_of(name)
    source_id = FORMATS[name].source_id
    for place in some(range(len(records) - 1), 5):
        if source_id(records[place]) is not None and source_id(records[place]) == source_id(records[-1]):
            continue  # it stands in the place of the damaged one
        with open_store("memory:") as store:
            version = import_source(store, source(name, records[:-1])).version
            damaged = source(name, records, damaged_at=place)
            grown = import_source(store, damaged)
            assert (grown.conversation, damaged.findings_count) == ("c", 1)
            assert not any(map(is_rewriting, store.events("c", version)))
            assert list(encode(store.events("c"), name)) == records


@pytest.mark.parametrize("name", FORMATS)
def test_it_does_where_another_hand_wrote_later_too(name):
    records = records_of(name)
    with open_store("memory:") as store:
        at = import_source(store, source(name, records[:-2])).version
        store.append("c", Retraction(version=at - 1), expected_version=at)
        assert import_source(store, source(name, records[:-2], damaged_at=2)).conversation == "c"
        for damaged_at in (2, None):
            assert import_source(store, source(name, records, damaged_at)).conversation == f"c@{at}"
        assert list(encode(store.events(f"c@{at}"), name)) == records


def test_an_edited_log_is_a_fork_that_the_next_import_continues(tmp_path, foldlog):
    path = tmp_path / "a.jsonl"
    asked = '{"type": "user", "uuid": "%s", "message": {"role": "user", "content": "%s"}}'

    def imported(*lines, **more):
        path.write_text("".join(f"{line}\n" for line in lines))
        done = foldlog("import", "a.jsonl", "--json")
        (document,) = done.document["imported"]
        return done.status, document["conversation"], document["added"], bool(document["note"])

    begin = [asked % (number, f"words {number}") for number in range(4)]
    assert imported(*begin, asked % ("e", "first")) == (0, "a", 5, False)
    assert imported(*begin, asked % ("e", "edited")) == (0, "a@4", 1, True)
    assert imported(*begin, asked % ("e", "edited"), asked % ("f", "more")) == (0, "a@4", 1, True)
    assert imported(*begin, asked % ("e", "again")) == (0, "a@4@4", 1, True)
    assert imported(*begin, asked % ("e", "again")) == (0, "a@4@4", 0, True)
    shown = foldlog("list", "--json").document["conversations"]
    assert {each["conversation"]: each["version"] for each in shown} == {"a": 5, "a@4": 6, "a@4@4": 5}
    foldlog("redact", "a", "4", "--reason", "asked for", "--yes")
    assert imported(*begin[:3], asked % ("x", "new"), asked % ("e", "what is redacted"))[0] == 1


def test_from_python_the_others_are_imported_too(tmp_path):
    asked = '{"role": "user", "content": "%s"}\n{"role": "assistant", "content": "yes"}'
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(asked % name)
    with api.open(tmp_path / "foldlog.db") as histories:
        histories.import_(tmp_path)
        (tmp_path / "a.jsonl").write_text(asked % "edited")
        (tmp_path / "c.jsonl").write_text(asked % "c")
        with pytest.raises(HistoryDiverged, match="/a'"):
            histories.import_(tmp_path)
        assert len(histories) == 3
