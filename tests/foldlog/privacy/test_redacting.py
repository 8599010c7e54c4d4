"""Redaction as people use it: the Python face, the command, the search index, an audit database,
exports.
"""

import json
import os
import tracemalloc
from datetime import timedelta
from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest

import foldlog as api
from foldlog._app.coding_agents.asked_conversation import Asking
from foldlog._app.coding_agents.mcp_tools import Answers
from foldlog._privacy import redacting as _redacting
from foldlog.eventstore import (
    CannotRedact,
    ConversationErased,
    InvalidArgument,
    ReadTransaction,
    Redaction,
    StreamNotFound,
    open_store,
)
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.sources.blocks import pack
from foldlog.formats import decode, encode
from foldlog.maintenance import Maintenance
from foldlog.projections.messages.content import data_url
from tests.between import at_each_moment, before_next_call
from tests.crash.bytes_left import bytes_left
from tests.foldlog.records import GOLDEN, read_lines
from tests.how_many import some
from tests.said import said
from tests.sound import problems
from tests.stored_rows import execute


def test_a_history_redacts_an_event_once(tmp_path):
    with api.open(tmp_path / "store.db") as histories:
        history = histories["c"]
        history.append([said(text) for text in ("tulip", "marigold", "rose")])
        (event,) = [event for event in history.view() if event.id == 1]
        receipt = history.redact(event, reason="asked to")
        assert (receipt.event_ids, receipt.bytes_pending, receipt.unconfirmed) == ((1,), True, ())
        assert receipt.by
        assert history.redact(1, reason="again").hashes == receipt.hashes
        assert history.view()[1].content == "[redacted]"
        with pytest.raises(CannotRedact):
            history.redact(3, reason="asked to")
        with pytest.raises(InvalidArgument, match="the reason is empty"):
            history.redact(0, reason=" ")
    assert bytes_left(tmp_path, ["marigold"]) == []


def test_a_number_is_no_text_to_search_for(tmp_path):
    wording = "text must be a text, not 4711"
    with api.open(tmp_path / "store.db") as opened, pytest.raises(TypeError, match=wording):
        opened.maintenance.redact_matching(4711, reason="asked to")


def fill(histories):
    for name in ("a", "b", "c"):
        histories[name].append([said("tulip"), said("rose")])
    histories["c"].fork(2, "fork")


def redact_tulips(histories):
    return histories.maintenance.redact_matching("tulip", reason="asked to")


def redact_first(histories):
    return histories["c"].redact(0, reason="asked to", with_summaries=True)


def test_fork_erased_meanwhile_stops_no_redaction():
    erase = methodcaller("erase", "fork", reason="asked to")
    for histories, receipt in at_each_moment(fill, erase, redact_first):
        assert receipt.event_ids == (0,)
        assert histories["c"].view()[0].content == "[redacted]"


def test_conversation_erased_meanwhile_is_redacted_or_refused():
    erase = methodcaller("erase", "c", reason="asked to", detach_forks=True)
    for histories, outcome in at_each_moment(fill, erase, redact_first):
        is_refused = isinstance(outcome, ConversationErased)
        assert is_refused or outcome.event_ids == (0,)
        first, _ = histories["fork"].view()
        assert first.content == ("tulip" if is_refused else "[redacted]")


def test_conversations_erased_meanwhile_during_matching():
    def use_again(histories):
        histories.erase("b", reason="asked to")
        histories.create("b", replace_erased=True).append([said("lily"), said("lily")])

    for histories, report in at_each_moment(fill, use_again, redact_tulips):
        assert report.stay == ()
        for name in ("a", "c", "fork"):
            assert [event.content for event in histories[name].view()] == ["[redacted]", "rose"]
        assert [event.content for event in histories["b"].view()] == ["lily", "lily"]


def test_a_fork_that_is_detached_meanwhile_is_redacted():
    detach = methodcaller("erase", "c", reason="asked to", detach_forks=True)

    for histories, report in at_each_moment(fill, detach, redact_tulips):
        assert report.stay == ()
        assert histories["fork"].view()[0].content == "[redacted]"
        assert (0,) in (report.events.get("c"), report.events.get("fork"))


@pytest.mark.parametrize("step", ["choose", "redact", "find_remaining"])
def test_redaction_fails_in_an_erased_conversation(step, monkeypatch, foldlog):
    with api.open("foldlog.db") as histories:
        histories["c"].append(said("tulip"))
        erase = partial(histories.erase, "c", reason="asked to")
        before_next_call(monkeypatch, _redacting.Redacting, step, erase)
        ran = foldlog("store redact c --matching tulip --reason r --yes")
    assert (ran.status, "'c' was erased" in ran.err) == (2, True)


def test_report_of_a_companion_erased_meanwhile_is_named(monkeypatch, foldlog):
    with api.open("foldlog.db") as histories:
        for name in ("c", "c/+notes"):
            histories[name].append(said("a long line about tulips in the garden"))
        foldlog("report c/+notes --output beside.html")
        erase = partial(histories.erase, "c/+notes", reason="asked to")
        before_next_call(monkeypatch, _redacting, "_keys", erase)
        receipt = histories["c"].redact(0, reason="asked to")
        assert "c/+notes" not in histories
    assert any("beside.html" in name for name in receipt.unconfirmed)


def test_a_companion_that_is_a_fork_refuses_no_redaction(histories):
    line = said("a long line about tulips in the garden")
    for name in ("c", "d"):
        histories[name].append(line)
    histories["d"].fork(1, "c/+notes").append(said("rose"))
    receipt = histories["c"].redact(0, reason="asked to")
    assert [(quote.conversation, quote.event_id) for quote in receipt.quotes] == [("d", 0)]
    for name in ("c", "d", "c/+notes"):
        assert histories[name].view()[0].content == "[redacted]"


def test_a_history_redacts_several_events_all_or_none(histories):
    history = histories["c"]
    history.append([said("hi")] * 6)
    for plan in ({"line": "long " * 40}, {"line": "long " * 40, "next": 1}):
        history.append((), documents={"plan": plan})
    assert [event.changed["plan"].get("base") for event in history.events(6)] == [None, 6]
    for one_is_wrong in ([2, 99], [2, -5], []):
        with pytest.raises(InvalidArgument):
            history.redact(one_is_wrong, reason="asked to")
    with pytest.raises(CannotRedact, match="redact event 7 first"):
        history.redact([2, 6], reason="asked to")
    assert not any(event.redacted for event in history.events())
    receipt = history.redact([6, *history.events(2, 4), 7], reason="asked to")
    assert (receipt.event_ids, receipt.documents_lost) == ((6, 2, 3, 7), ("plan",))
    assert [event.id for event in history.events() if event.redacted] == [2, 3, 6, 7]
    (written,) = (event for event in history.events() if isinstance(event, Redaction))
    assert len(written.event_ids) == 4


def test_redact_names_only_the_documents_that_are_lost(foldlog):
    with api.open("foldlog.db") as histories:
        histories["c"].append(said("hi"), documents={"a": 1, "b": 1})
        for value in (2, 3):
            histories["c"].append((), documents={"b": value})
    redact = "store redact c 1 --reason x --yes"
    assert "the event set 'a'; set the values again" in foldlog(redact).out
    (receipt,) = foldlog(f"{redact} --json").document["receipts"]
    assert receipt["documents_lost"] == ["a"]
    assert "set the values again" not in foldlog("store redact c 2 --reason x --yes").out


def test_rows_read_stay_linear(foldlog, write, rows_read):
    counts = []
    for redacted in (1, 30):
        texts = [f"{'marigold' if n < redacted else 'word'} number {n}" for n in range(60)]
        write("x.jsonl", [{"role": "user", "content": text} for text in texts])
        foldlog(f"import x.jsonl --db {redacted}.db")
        rows_read.clear()
        ran = foldlog(f"store redact --matching marigold --reason r --yes --db {redacted}.db")
        assert f"{redacted} event" in ran.err
        counts.append(sum(rows_read))
    assert counts[1] < 3 * counts[0], counts


def test_attachments_and_other_fields_are_redacted(tmp_path):
    store = tmp_path / "store.db"
    held = b"marigold " * 20
    image = b"\x89PNG" + held
    parts = [
        {"type": "file", "file": {"filename": "tulip.txt", "file_data": held}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": b"%PDF-" + os.urandom(100_000) + held},
        },
        {"type": "image_url", "image_url": {"url": image}},
        {"type": "image_url", "image_url": {"url": data_url(image)}},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": data_url(image)[22:]},
        },
        {"type": "input_audio", "input_audio": {"data": held, "format": "wav"}},
    ]
    marks = ["marigold", "tulip", data_url(image)[40:80], "orchid"]
    with api.open(store) as histories:
        history = histories["c"]
        for part in parts:
            content = [{"type": "text", "text": "kept"}, part]
            history.append({"role": "user", "content": content, "odd": "orchid"})
        history.append(said("kept"), documents={"d": {"n": 1}})
        assert len(histories.search("kept")) == len(parts) + 1
        assert bytes_left(tmp_path, marks)
        for place, _ in enumerate(parts):
            history.redact(place, reason="asked to")
        histories.maintenance.vacuum()
        for name in ("openai-chat", "anthropic-messages"):
            exported = repr(list(history.export(name)))
            assert [mark for mark in marks if mark in exported] == []
        assert not histories.search("tulip")
    assert bytes_left(tmp_path, marks) == []


IMPORTS = sorted((GOLDEN / "imports").glob("*.jsonl"))


@pytest.mark.parametrize("file", IMPORTS, ids=lambda file: file.stem)
def test_any_redacted_event_can_be_exported(file):
    for row in read_lines(file):
        events = list(decode(row["records"], file.stem))
        with api.open("memory:") as histories:
            for event_id in some(range(len(events)), 3):
                history = histories[f"{event_id}"]
                histories.store.ingest(history.id, events)
                history.redact(event_id, reason="asked to")
                assert json.dumps(list(encode(histories.store.events(history.id), "openai-chat")))
                history.view().to_messages()
                history.stats()


@pytest.mark.parametrize("summaries_first", [False, True])
def test_redacted_summary_takes_its_whole_record(summaries_first, histories):
    summary = "the card of Zoe is known to me"

    def message_item(text):
        return {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }

    payloads = [
        ("session_meta", {"id": "s", "cwd": "/"}),
        *(("response_item", message_item(text)) for text in ("Zoe 4111", "go on")),
        (
            "compacted",
            {
                "message": summary,
                "replacement_history": [message_item("go on"), message_item(summary)],
            },
        ),
        ("response_item", message_item("what next")),
    ]
    history = histories["c"]
    records = [
        {"timestamp": "2026-02-01T00:00:00Z", "type": kind, "payload": payload}
        for kind, payload in payloads
    ]
    history.append_records(records, format="codex")
    # the summary is event 4
    for name, version in (("whole", 5), ("cut", 4), ("before", 3), ("cut again", 4)):
        (histories["whole"] if name == "cut again" else history).fork(version, id=name)
    if summaries_first:
        assert {*history.redact(4, reason="asked to").forks} == {"whole", "cut", "cut again"}
    receipt = history.redact(1, reason="asked to", with_summaries=True)
    assert (receipt.event_ids, {*receipt.forks}) == (
        (1, 4, 3),
        {"whole", "cut", "before", "cut again"},
    )
    redactions = {name: histories.store.conversation(name).redactions for name in receipt.forks}
    assert redactions == {"whole": 3, "cut": 2, "before": 1, "cut again": 2}
    assert "Zoe" not in json.dumps([*history.export()]) + repr([*history.events()])


# -- the command
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [("c", "0"), ("--matching", "marigold")], ids=" ".join)
def test_new_conversation_with_this_id_stays(foldlog, tmp_path, monkeypatch, chosen):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(said("marigold"))

    def erased_meanwhile(*question):
        with api.open(tmp_path / "foldlog.db") as histories:
            histories.erase("c", reason="asked to")
            histories.create("c", replace_erased=True).append(said("tulip"))

    monkeypatch.setattr("foldlog._app.cli.terminal.confirm", erased_meanwhile)
    ran = foldlog("store redact", *chosen, "--reason", "asked to")
    is_named = chosen[0] == "c"
    assert (ran.status != 0) is is_named
    assert ("conversation 'c' was erased" in ran.err) is is_named
    with api.open(tmp_path / "foldlog.db") as histories:
        *_, newest = histories["c"].events()
        assert newest.content == "tulip"


def test_unconfirmed_read_model_is_named(foldlog, tmp_path):
    with open_store(tmp_path / "foldlog.db") as store:
        store.append("c", [said(f"{n}") for n in range(3)], expected_version=0)
        for name, position in (("slow", 2), ("other", 3)):
            store.database.recorder.transact(
                lambda t, n=name, p=position: t.set_value(f"tracking {n}", str(p))
            )
        assert api.Histories(store)["c"].redact(0, reason="asked to").unconfirmed == (
            "other",
            "slow",
        )
        store.database.recorder.transact(lambda t: t.set_value("tracking slow", "4"))
    ran = foldlog("store redact c 0 --yes --reason 'asked to'")
    assert ran.status == 1
    assert (
        "a read model has not confirmed the redaction and may still contain the content: other"
        in ran.err
    )
    assert "slow" not in ran.err


def test_long_text_is_redacted_in_little_memory(history):
    long = "\n".join(
        f"the guest with number {number} came in {number % 97} boats" for number in range(6_000)
    )
    records = [{"role": "user", "content": text} for text in (long, f"{long} ")]
    history.append_records(records, format="openai-chat")
    tracemalloc.start()
    try:
        history.redact(0, reason="asked to")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(long)


@pytest.mark.parametrize("key", [None, "00" * 32])
def test_records_of_forks_are_redacted_too(tmp_path, key):
    secret = "the password is swordfish"
    message = {"role": "user", "content": secret}
    with api.open(
        tmp_path / "store.db", keys=None if key is None else api.KeyRing(key)
    ) as histories:
        history = histories["c"]
        history.append_records([message], format="openai-chat")
        forks = []
        for number in (1, 2):
            forks.append((forks or [history])[-1].fork(id=f"fork {number}"))
            forks[-1].append_records(
                [{"role": "user", "content": f"done {number}"}, message], format="openai-chat"
            )
        assert history.redact(0, reason="asked to", by="me").forks == ("fork 1", "fork 2")
        for fork in forks:
            assert secret not in json.dumps(list(fork.export())) + repr(list(fork.events()))
            assert "done 1" in json.dumps(list(fork.export()))
        assert not any(verdict.findings for verdict in Maintenance(histories.store).verify())


def test_a_text_in_an_unfinished_reply_is_deleted_with_its_bytes(foldlog):
    with api.open("foldlog.db") as histories:
        history = histories["c"]
        history.append(said("who is it?"))
        reply = history.stream_reply()
        for piece in ("It is Mari", "gold ", "Weber."):
            reply.feed(piece)
        assert foldlog("store redact --matching 'marigold w' --reason r --dry-run").status == 0
        report = histories.maintenance.redact_matching("marigold w", reason="asked to")
        assert (report.events, report.streams, report.stay) == ({}, {"c": ("reply",)}, ())
        assert history.unfinished_reply() is None
        with pytest.raises(StreamNotFound):
            reply.feed("!")
    foldlog("store vacuum")
    assert bytes_left(Path(), ["Weber"]) == []


def test_a_text_in_a_finished_reply_is_deleted_from_its_stream_too(foldlog):
    with api.open("foldlog.db") as histories:
        for name in ("c", "other"):
            histories[name].append(said("who is it?"))
            with histories[name].stream_reply() as reply:
                for piece in ("It is ", "Marigold" if name == "c" else "Rose", "."):
                    reply.feed(piece)
    ran = foldlog("store redact --matching marigold --reason r --yes --json")
    assert ran.document["found"] == [{"conversation": "c", "event_ids": [1]}]
    assert (ran.document["streams"], ran.document["stay"]) == ({"c": ["reply"]}, [])
    assert bytes_left(Path(), ["Marigold"]) == []
    with open_store("foldlog.db") as store:
        left = [store.query(name, ReadTransaction.streams) for name in ("c", "other")]
    assert list(map(len, left)) == [0, 1]


@pytest.fixture
def with_damage(tmp_path):
    """Three imported histories. The source of ``b`` is changed by a statement."""

    def make(change):
        path = tmp_path / "foldlog.db"
        with api.open(path) as histories:
            for name in ("a", "b", "c"):
                message = {"role": "user", "content": "the tulip"}
                record = {"type": "user", "uuid": name, "sessionId": name, "message": message}
                record["cwd"] = "/srv/alice"
                (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(record)}\n")
                histories.import_(tmp_path / f"{name}.jsonl")
                histories[name].view()
        execute(
            path,
            f"UPDATE sources SET {change} WHERE conversation ="
            " (SELECT key FROM conversations WHERE id = 'b')",
        )
        return api.open(path)

    return make


@pytest.mark.parametrize(
    "change, problem",
    [
        ("format = 'missing'", "a format of a package that is not installed; install the package"),
        ("about = x'00'", "the records of the source from 0 on cannot be read"),
        ("redacted = x'00'", "still contains the text"),
    ],
)
def test_a_source_that_cannot_be_read_stops_no_other_redaction(change, problem, with_damage):
    with with_damage(change) as histories:
        report = redact_tulips(histories)
        assert {receipt.conversation for receipt in report.receipts} == {"a", "c"}
        assert {stay.conversation for stay in report.stay} == {"b"}
        assert any(problem in stay.problem for stay in report.stay)


@pytest.mark.parametrize(
    "change",
    ["format = 'missing'", "about = x'00'", "redacted = x'ffffff7f'", "redacted = x'00'"],
)
def test_a_history_with_a_source_that_cannot_be_read_is_erased(change, with_damage):
    with with_damage(change) as histories:
        tombstone = histories.erase("b", reason="asked to")
        assert tombstone.erased_at is not None
        path = "whose path cannot be read" if "x'00'" in change else "b.jsonl"
        assert [path in name for name in tombstone.unconfirmed] == [True]
        assert len(histories.maintenance.expire(timedelta()).conversations) == 2
        assert sorted(histories) == []


def test_a_source_with_a_redacted_record_too_many_is_redacted_and_imported(with_damage, tmp_path):
    """A damaged list of redacted records names a record that the source does not have."""
    with with_damage("redacted = x'ffffff7f'") as histories:
        assert histories["b"].redact(0, reason="asked to").event_ids == (0,)
        histories.import_(tmp_path / "b.jsonl")
        report = redact_tulips(histories)
        assert {receipt.conversation for receipt in report.receipts} == {"a", "c"}
        assert report.stay == ()
        problem = "b: the list of its redacted records names records that it does not have"
        assert problems(histories.store) == [problem]


DAMAGED = ["x'00'", f"x'{pack(b'no JSON').hex()}'"]


@pytest.mark.parametrize("about", DAMAGED)
@pytest.mark.parametrize("where", [None, {"cwd": "/srv/alice"}])
@pytest.mark.parametrize("with_children", [False, True])
def test_a_history_of_unknown_age_stays_and_is_named(about, where, with_children, with_damage):
    with with_damage(f"about = {about}") as histories:
        expired = histories.maintenance.expire(timedelta(), where, with_children=with_children)
        assert {row.id for row in expired.conversations} == {"a", "c"}
        (problem,) = expired.not_erased
        assert "conversation 'b' is not erased" in problem
        assert "cannot be read" in problem
        (archived,) = histories.maintenance.archive(timedelta(), "memory://", where)
        assert archived.conversation == "b"
        assert "cannot be read" in (archived.stays or "")
        tombstone = histories.erase("b", reason="asked to")
        assert tombstone.unconfirmed == ("imported file of 'b', whose path cannot be read",)


def test_a_command_names_a_history_whose_source_is_damaged(with_damage, foldlog):
    where = ["--where", "cwd=/srv/alice"]
    with_damage("about = x'00'").close()
    listed = foldlog("list", "cwd=/srv/alice")
    assert "conversation 'b' may have the attributes too" in listed.err
    expired = foldlog("store expire", "--older-than", "0s", *where, "--dry-run")
    assert "2 conversations to erase" in expired.out
    assert "conversation 'b' is not erased" in expired.err
    redacted = foldlog("store redact", "--matching", "tulip", *where, "--reason", "r", "--yes")
    assert "conversation 'b' was not searched" in redacted.err
    assert redacted.status == 1
    erased = foldlog("store erase", "b", "--reason", "r", "--yes")
    assert "imported file of 'b', whose path cannot be read" in erased.err


def test_a_search_by_attributes_names_a_history_whose_source_is_damaged(with_damage):
    with with_damage("about = x'00'") as histories:
        report = histories.maintenance.redact_matching(
            "tulip", {"cwd": "/srv/alice"}, reason="asked to"
        )
        assert report.events == {"a": (0,), "c": (0,)}
        (stay,) = report.stay
        assert stay.conversation == "b"
        assert "was not searched" in stay.problem


@pytest.mark.parametrize("is_old", [True, False])
def test_the_age_of_a_detached_fork_is_that_of_its_first_import(
    is_old, histories, tmp_path, monkeypatch
):
    """The fork has a copy of what the import of the erased history brought beside its records."""
    record = {"type": "user", "message": {"role": "user", "content": "hello"}}
    lines = [json.dumps({**record, "uuid": name, "sessionId": "s"}) for name in ("u0", "u1")]
    (tmp_path / "s.jsonl").write_text("\n".join([lines[0], '{"broken tulip', lines[1], ""]))
    began = histories.store.database.now()
    histories.import_(tmp_path / "s.jsonl")
    assert len(histories["s"].view()) == 2
    if is_old:
        began = histories.store.database.now() + 1
    histories["s"].fork(2, "fork")
    histories.erase("s", reason="asked to", detach_forks=True)
    with monkeypatch.context() as patched:
        patched.setattr(Maintenance, "_ago", lambda self, span: from_microseconds(began))
        report = histories.maintenance.redact_matching(
            "tulip", reason="policy", older_than=timedelta()
        )
    assert report.beside == (("fork",) if is_old else ())
    assert report.stay == ()


def test_what_is_younger_than_an_age_stays(histories, tmp_path, monkeypatch):
    """A record that a later import brought, a stream that began later, and the title of a chat that
    was imported later.
    """
    grown = tmp_path / "grown.jsonl"
    records = [
        {"type": "user", "uuid": f"u{number}", "message": {"role": "user", "content": text}}
        for number, text in enumerate(["one tulip", "hello", "another tulip"])
    ]
    lines = [f"{json.dumps({**record, 'sessionId': 's'})}\n" for record in records]
    grown.write_text("".join(lines[:2]))
    histories.import_(grown)
    histories["s"].view()
    history = histories["c"]
    history.append([said("tulip"), said("hello")])
    began = histories.store.database.now() + 1
    grown.write_text("".join(lines))
    histories.import_(grown)
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}}
    nodes = {"m": {"id": "m", "parent": None, "children": [], "message": message}}
    chat = {"id": "chat", "title": "the tulip", "current_node": "m", "mapping": nodes}
    chats = tmp_path / "conversations.json"
    chats.write_text(json.dumps([chat]))
    histories.import_(chats)
    reply = history.stream_reply()
    reply.feed("a third tulip")
    assert len(histories["s"].view()) == 3
    with monkeypatch.context() as patched:
        patched.setattr(Maintenance, "_ago", lambda self, span: from_microseconds(began))
        report = histories.maintenance.redact_matching(
            "tulip", reason="policy", older_than=timedelta()
        )
    assert report.events == {"s": (0,), "c": (0,)}
    assert (report.beside, report.streams, report.stay) == ((), {}, ())
    reply.feed(", too")
    report = histories.maintenance.redact_matching("tulip", reason="asked to")
    assert report.events == {"s": (2,), "chat": (1,)}
    assert (report.beside, report.streams) == (("chat",), {"c": ("reply",)})


@pytest.mark.parametrize(
    "kind, bodies",
    [
        ("text/plain", ["Straß".encode()[:-1], "ß".encode()[-1:] + b"e 5"]),
        (
            "application/json",
            [b'[{"type":"d","delta":"stra"}]', b'[1,{"type":"d","delta":"sse 5"}]'],
        ),
        ("application/json", [b'[{"input":{"place":["strasse 5"]}}]']),
    ],
)
def test_a_text_in_a_stream_of_another_form_is_found(histories, kind, bodies):
    history = histories["c"]
    history.append(said("hi"))

    def write(writing):
        stream = streams.begin(writing, "live", kind)
        for body in bodies:
            units = len(body) if kind == "text/plain" else len(json.loads(body))
            stream = streams.append(writing, stream.number, stream.end, units, body)

    histories.store.project("c", write)
    report = histories.maintenance.redact_matching("STRASSE 5", reason="asked to")
    assert (report.streams, report.stay) == ({"c": ("live",)}, ())
    assert histories.store.query("c", ReadTransaction.streams) == []


def test_a_list_of_a_folder_names_a_conversation_whose_source_is_damaged(
    with_damage, foldlog, tmp_path, monkeypatch
):
    with_damage("about = x'00'").close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    listed = foldlog("list", "--here", "--db", str(tmp_path / "foldlog.db"))
    assert "conversation 'b' may be of this folder too, but its source is damaged" in listed.err
    assert listed.status == 1


def test_tools_name_a_conversation_whose_source_is_damaged(with_damage):
    with with_damage("about = x'00'") as histories:
        asking = Asking(histories.store, {}, "/srv/alice", may_import=False)
        tools = Answers(histories.store, asking)
        lines = tools.sessions(directory="/srv/alice").splitlines()
        assert len(lines) == 3
        assert lines[0].startswith(
            "conversation b may be of this folder too, but its source is damaged"
        )
        choices = tools.dropped().splitlines()
        assert {line.split()[1] for line in choices if line.startswith("conversation ")} == {
            "a:",
            "b:",
            "c:",
        }
