"""Redaction as people use it: the Python face, the command, the search index, an audit database, exports."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import typer

import foldlog as api
from foldlog import _matching
from foldlog._cli.application import build
from foldlog._cli.demo import SAMPLE
from foldlog._maintenance import Maintenance
from foldlog._reports.audit_database import update
from foldlog.eventstore import CannotRedact, CondensationAction, InvalidArgument, Message, Redaction, open_store
from foldlog.formats import decode, encode
from foldlog.projections.messages.content import data_url
from tests.crash.bytes_left import bytes_left
from tests.foldlog.test_audit_database import damage
from tests.how_many import some


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with api.open(path) as histories:
        history = histories["c"]
        history.append(
            [Message(source="user", content=f"word{n} marigold" if n == 2 else f"word{n}") for n in range(6)]
        )
    return path


def test_a_history_redacts_its_events(path: Path):
    with api.open(path) as histories:
        history = histories["c"]
        (event,) = [event for event in history.view() if event.id == 2]
        receipt = history.redact(event, reason="asked to")
        assert (receipt.event_ids, receipt.bytes_pending, receipt.unconfirmed) == ((2,), True, ())
        assert receipt.by
        assert history.redact(2, reason="again").hashes == receipt.hashes
        assert history.view()[2].content == "[redacted]"
        with pytest.raises(CannotRedact):
            history.redact(6, reason="asked to")
        with pytest.raises(InvalidArgument):
            history.redact(99, reason="asked to")
    assert bytes_left(path.parent, ["marigold"]) == []


def test_a_history_redacts_several_events_all_or_none(path: Path):
    with api.open(path) as histories:
        history = histories["c"]
        for plan in ({"line": "long " * 40}, {"line": "long " * 40, "next": 1}):
            history.append((), documents={"plan": plan})
        assert [each.changed["plan"].get("base") for each in history.events(6)] == [None, 6]
        for one_is_wrong in ([2, 99], [2, -5], []):
            with pytest.raises(InvalidArgument):
                history.redact(one_is_wrong, reason="asked to")
        with pytest.raises(CannotRedact, match="redact event 7 first"):
            history.redact([2, 6], reason="asked to")
        assert not any(each.redacted for each in history.events())
        receipt = history.redact([6, *history.events(2, 4), 7], reason="asked to")
        assert (receipt.event_ids, receipt.documents_lost) == ((6, 2, 3, 7), ("plan",))
        assert [each.id for each in history.events() if each.redacted] == [2, 3, 6, 7]
        assert [len(each.event_ids) for each in history.events() if isinstance(each, Redaction)] == [4]


def test_what_the_command_reads_does_not_grow_with_events_times_redacted_ones(
    foldlog: Any, tmp_path: Path, rows_read: list[int]
):
    counts = []
    for redacted in (1, 30):
        texts = [f"{'marigold' if number < redacted else 'word'} number {number}" for number in range(60)]
        (tmp_path / "x.jsonl").write_text("".join(f'{{"role": "user", "content": "{text}"}}\n' for text in texts))
        foldlog("import", "x.jsonl", "--db", f"{redacted}.db")
        rows_read.clear()
        ran = foldlog("redact", "--matching", "marigold", "--reason", "r", "--yes", "--db", f"{redacted}.db")
        assert f"{redacted} event" in ran.err
        counts.append(sum(rows_read))
    assert counts[1] < 3 * counts[0], counts


def test_a_redaction_takes_the_bytes_of_attachments_and_the_other_fields(tmp_path: Path):
    store, held = tmp_path / "store.db", b"marigold " * 20
    image = b"\x89PNG" + held
    parts: list[dict[str, Any]] = [
        {"type": "file", "file": {"filename": "tulip.txt", "file_data": held}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": b"%PDF-" + os.urandom(100_000) + held}},
        {"type": "image_url", "image_url": {"url": image}},
        {"type": "image_url", "image_url": {"url": data_url(image)}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data_url(image)[22:]}},
        {"type": "input_audio", "input_audio": {"data": held, "format": "wav"}},
    ]
    marks = ["marigold", "tulip", data_url(image)[40:80], "orchid"]
    with api.open(store) as histories:
        history = histories["c"]
        for part in parts:
            history.append({"role": "user", "content": [{"type": "text", "text": "kept"}, part], "odd": "orchid"})
        history.append({"role": "user", "content": "kept"}, documents={"d": {"n": 1}})
        assert len(histories.search("kept")) == len(parts) + 1
        assert bytes_left(tmp_path, marks)
        for place, _ in enumerate(parts):
            history.redact(place, reason="asked to")
        histories.maintenance.vacuum()
        for name in ("openai-chat", "openai-responses"):
            exported = repr(list(history.export(name)))
            assert [mark for mark in marks if mark in exported] == []
        assert not histories.search("tulip")
    assert bytes_left(tmp_path, marks) == []


def test_a_search_index_that_cannot_be_changed_is_named(path: Path):
    with api.open(path) as histories:
        histories.search("marigold")
    path.with_name("store.db.search").write_bytes(b"another program's file" * 100)
    with api.open(path) as histories:
        (unconfirmed,) = histories["c"].redact(2, reason="asked to").unconfirmed
        assert unconfirmed.startswith("search index: ")


GOLDEN = Path(__file__).parents[1] / "golden" / "imports"
FORMATS = [file.stem for file in sorted(GOLDEN.glob("*.jsonl"))]


@pytest.mark.parametrize("format", FORMATS)
def test_a_history_with_any_redacted_event_can_be_exported(format: str):
    for line in (GOLDEN / f"{format}.jsonl").read_text("utf-8").splitlines():
        events = list(decode(json.loads(line)["records"], format))
        with api.open("memory:") as histories:
            for event_id in some(range(len(events)), 3):
                history = histories[f"{event_id}"]
                histories.store.ingest(history.id, events)
                history.redact(event_id, reason="asked to")
                for written in (format, "openai-chat"):
                    assert json.dumps(list(encode(histories.store.events(history.id), written)))
                history.view().to_messages()
                history.stats()


@pytest.mark.parametrize("summaries_first", [False, True])
def test_a_redacted_summary_takes_its_record_and_what_repeats_it(summaries_first: bool):
    summary = "the card of Zoe is known to me"

    def said(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    told = [
        *(
            ("session_meta", {"id": "s", "cwd": "/"}),
            *(("response_item", said(text)) for text in ("Zoe 4111", "go on")),
        ),
        ("compacted", {"message": summary, "replacement_history": [said("go on"), said(summary)]}),
        *(("event_msg", {"type": "agent_message", "message": summary}), ("response_item", said("what next"))),
    ]
    with api.open("memory:") as histories:
        history = histories["c"]
        records = [{"timestamp": "2026-02-01T00:00:00Z", "type": kind, "payload": each} for kind, each in told]
        history.append_records(records, format="codex")
        for name, version in (("whole", 5), ("cut", 4), ("before", 3), ("cut again", 4)):  # the summary is event 4
            (histories["whole"] if name == "cut again" else history).fork(version, id=name)
        if summaries_first:
            assert {*history.redact(4, reason="asked to").forks} == {"whole", "cut", "cut again"}
        receipt = history.redact(1, reason="asked to", with_summaries=True)
        assert (receipt.event_ids, {*receipt.forks}) == ((1, 4), {"whole", "cut", "before", "cut again"})
        gone = {name: histories.store.conversation(name).redactions for name in receipt.forks}
        assert gone == {"whole": 3, "cut": 2, "before": 1, "cut again": 2}
        assert "Zoe" not in json.dumps([*history.export()]) + repr([*history.events()])


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [("c", "1"), ("--matching", "marigold")], ids=" ".join)
def test_the_command_redacts_nothing_of_a_conversation_that_took_the_id_while_it_asked(
    foldlog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: tuple[str, str]
):
    def begin(histories: api.Histories, text: str) -> None:
        histories.create("c", replace_erased=True).append(Message(source="user", content=text))

    def erased_meanwhile(*question: object) -> None:
        with api.open(tmp_path / "foldlog.db") as histories:
            histories.erase("c", reason="asked to")
            begin(histories, "tulip")

    with api.open(tmp_path / "foldlog.db") as histories:
        begin(histories, "marigold")
    monkeypatch.setattr("foldlog._cli.terminal.confirm", erased_meanwhile)
    ran = foldlog("redact", *chosen, "--reason", "asked to")
    assert ran.status != 0
    assert "conversation 'c' was erased" in ran.err
    with api.open(tmp_path / "foldlog.db") as histories:
        assert [getattr(event, "content", "") for event in histories["c"].events()] == ["", "tulip"]


def test_the_command_redacts_an_event_and_says_what_may_quote_it(foldlog: Any, tmp_path: Path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("c", [Message(source="user", content=f"marigold {n}") for n in range(3)], expected_version=0)
        summary = CondensationAction(forgotten_event_ids=[1], summary="marigolds", summary_offset=1)
        store.append("c", summary, expected_version=3)
        store.fork("c", 2, "f")
        update(store, tmp_path / "audit.db")
    assert "needs a terminal; nothing was redacted" in foldlog("redact", "c", "1", "--reason", "asked to").err
    ran = foldlog("redact", "c", "1", "--yes", "--reason", "asked to", "--by", "ann")
    assert ran.status == 1
    assert f"has not confirmed the redaction: audit database {tmp_path}/audit.db" in ran.err
    assert "c: event 1 redacted at " in ran.out
    assert " by ann, hash " in ran.out
    assert "c: the summary of condensation 3 replaces it and may quote it; --with-summaries redacts it" in ran.out
    assert "1 fork shows it redacted too: f" in ran.out
    ran = foldlog("redact", "c", "1", "--yes", "--reason", "x", "--with-summaries", "--json")
    [receipt] = ran.document["receipts"]
    assert (receipt["event_ids"], receipt["bytes_pending"], receipt["reason"]) == ([1, 3], False, "asked to")
    assert foldlog("audit", "--to", "audit.db").status == 0
    ran = foldlog("redact", "c", "1", "--yes", "--reason", "x", "--with-summaries", "--json")
    assert (ran.status, ran.document["holders"]) == (0, [])
    assert bytes_left(tmp_path, ["marigold 1", "marigolds"]) == []
    for arguments, problem in (
        (("c", "99"), "conversation 'c' has no event 99; it has events 0 to 5"),
        (("f", "0"), "event 0 of 'f' belongs to conversation 'c', which it was forked from; redact it there"),
        (("c", "5"), "cannot be redacted, because it is a receipt"),
        (("other", "0"), "this store has no conversation 'other'"),
    ):
        ran = foldlog("redact", *arguments, "--yes", "--reason", "asked to")
        assert ran.status == 2
        assert problem in ran.err
    assert foldlog("redact", "c", "0", "--yes", "--reason", " ").status == 2
    assert "by ann: asked to (" in foldlog("show", "c", "1").out
    again = foldlog("redact", "c", "1", "--yes", "--reason", "x", "--with-summaries", "--by", "bob").out
    receipts = dict(re.findall(r"event (\d) redacted at (.*), hash \w{64}$", again, re.MULTILINE))
    assert receipts["1"].endswith(" by ann")
    assert not receipts["3"].endswith((" by ann", " by bob"))
    assert receipts["1"][:32] < receipts["3"][:32]
    assert foldlog("verify").status == 0


def test_the_command_names_the_attributes_and_documents_that_go_with_an_event(foldlog: Any, tmp_path: Path):
    with api.open(tmp_path / "foldlog.db") as histories:
        history = histories["c"]
        history.append({"role": "user", "content": "hi"}, documents={"a": 1, "b": 1})
        history.append((), documents={"b": 2})
        history.set_attributes(user="ann")
        history.set_attributes(phone="555")
    for event_id, lost in ((1, "'a'"), (3, None), (4, "all attributes")):
        ran = foldlog("redact", "c", event_id, "--reason", "asked to", "--yes")
        assert ran.status == 0
        said = f"it held the values of {lost}: set them again"
        assert (said in ran.out) if lost else ("set them again" not in ran.out)
        again = foldlog("redact", "c", event_id, "--reason", "asked to", "--yes", "--json").document["receipts"][0]
        assert again["documents_lost"] == ([] if lost is None else ["a"] if lost == "'a'" else ["attributes"])
    with api.open(tmp_path / "foldlog.db") as histories:
        assert histories["c"].attributes() == {}
        lost = (("a",), (), ("attributes",))
        assert tuple(histories["c"].redact(each, reason="x").documents_lost for each in (1, 3, 4)) == lost


def test_the_command_takes_the_id_of_a_summary(foldlog: Any, tmp_path: Path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("c", [Message(source="user", content=f"marigold {n}") for n in range(3)], expected_version=0)
        summary = CondensationAction(forgotten_event_ids=[1], summary="marigolds", summary_offset=1)
        store.append("c", summary, expected_version=3)
    for command, *options in (("show",), ("why",), ("redact", "--yes", "--reason", "x")):
        for dashes in ([], ["--"]):
            ran = foldlog(command, *options, "--json", *dashes, "c", "-5")
            assert (ran.status, ran.err) == (0, ""), command
    assert ran.document["receipts"][0]["event_ids"] == [3]
    assert bytes_left(tmp_path, ["marigolds"]) == []
    assert foldlog("show", "--json", "c", "-5").document["event"]["redacted"]["reason"] == "x"
    assert "Invalid value for 'EVENT'" in foldlog("redact", "c", "-5", "--resaon", "x").err
    commands = typer.main.get_command(build()).commands  # type: ignore[attr-defined]
    taking = {
        name: command.context_settings.get("ignore_unknown_options", False)
        for name, command in commands.items()
        if any(parameter.metavar == "EVENT" for parameter in command.params)
    }
    assert taking == dict.fromkeys(["show", "why", "redact"], True)


def test_a_read_model_that_has_not_read_the_receipt_is_named(foldlog: Any, tmp_path: Path):
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        store.append("c", [Message(source="user", content=f"{n}") for n in range(3)], expected_version=0)
        for name, position in (("slow", 2), ("other", 3)):
            store.database.recorder.transact(lambda t, n=name, p=position: t.set_value(f"tracking {n}", str(p)))  # type: ignore[misc]
        assert api.Histories(store)["c"].redact(0, reason="asked to").unconfirmed == ("other", "slow")
        store.database.recorder.transact(lambda t: t.set_value("tracking slow", "4"))
    ran = foldlog("redact", "c", "0", "--yes", "--reason", "asked to")
    assert ran.status == 1
    assert "a read model may still hold the content, because it has not confirmed the redaction: other" in ran.err
    assert "slow" not in ran.err


def test_a_restored_backup_names_what_a_detached_fork_had_redacted(foldlog: Any, tmp_path: Path):
    """The receipt was an event of the parent, and went with it. The content is again an event of the parent."""
    with api.open(tmp_path / "foldlog.db") as histories:
        history = histories["c"]
        history.append([Message(source="user", content=text) for text in ("zero", "marigold", "rose")])
        fork = history.fork(3, id="c-fork")
        fork.append({"role": "user", "content": "three"})
        assert foldlog("backup", "copy.db").status == 0
        history.redact(1, reason="asked to")
        history.redact(2, reason="asked to")
        histories.erase("c", reason="asked to", detach_forks=True)
        fork.redact(3, reason="asked to")
        fork.append({"role": "user", "content": "younger than the backup"})
        fork.redact(len(fork) - 1, reason="asked to")
    ran = foldlog("restore", "copy.db", "--yes", "--json")
    assert ran.status == 1
    assert (ran.document["erased_since"], ran.document["redacted_since"]) == (["c"], ["c", "c-fork"])
    commands = re.findall(r"'foldlog ([^']*) --reason TEXT([^']*)'", ran.err)
    assert commands == [("redact c 2 1", ""), ("redact c-fork 3", ""), ("erase c", " --detach")]
    for command, option in commands:
        assert foldlog(*command.split(), *option.split(), "--reason", "again", "--yes").status == 0
    with api.open(tmp_path / "foldlog.db") as histories:
        texts = [event.content for event in histories["c-fork"].events() if isinstance(event, Message)]
        assert texts == ["zero", "[redacted]", "[redacted]", "[redacted]"]


def test_a_redaction_takes_the_records_that_repeat_the_content(tmp_path: Path):
    """A record of V0 repeats the response of the model, and so do those of its parallel calls and their results."""
    secret = "the password is swordfish"
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": json.dumps({"command": secret})}}
    response = {"id": "r1", "choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    about = {"function_name": "run", "tool_call_id": "c1", "model_response": response, "total_calls_in_response": 1}
    records = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}},
        {"id": 1, "source": "agent", "action": "run", "args": {"command": secret}, "tool_call_metadata": about},
        {"id": 2, "source": "agent", "observation": "run", "content": "ok", "cause": 1, "tool_call_metadata": about},
        {"id": 3, "source": "agent", "action": "message", "args": {"content": "done", "log": f"I ran {secret}."}},
    ]
    with api.open(tmp_path / "v0.db") as histories:
        history = histories["c"]
        history.append_records(records, format="openhands-v0")
        history.redact(1, reason="asked to", by="me")
        exported = list(encode(history.events(), "openhands-v0"))
        assert secret not in json.dumps(exported)
        assert secret not in repr([event.origin for event in history.events()])
        assert exported[0] == records[0]
        result, last = list(history.events(2, 4))
        assert (result.content, last.content) == ("ok", "done")
        assert result.redacted is not None
        assert result.redacted.record
        assert not any(verdict.findings for verdict in Maintenance(histories.store).verify())


@pytest.mark.parametrize("said", ["swordfish", 'say "swordfish",\nand go in'])
@pytest.mark.parametrize("log", ["I was told {}.", json.dumps(json.dumps({"told": "{}"}))])
def test_a_redaction_takes_each_record_with_more_of_the_content_than_its_event_shows(
    tmp_path: Path, said: str, log: str
):
    arguments = json.dumps({"password": said})
    call = {"id": "x", "type": "function", "function": {"name": "open", "arguments": arguments}}
    told = log.replace("{}", said if log[0] == "I" else json.dumps(json.dumps(said)[1:-1])[1:-1])
    records = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "open"},
        {"role": "user", "content": "thanks", "log": told},
        {"role": "user", "content": f"as I said: {said}", "log": "thanks"},
    ]
    with api.open(tmp_path / "store.db") as histories:
        history = histories["c"]
        history.append_records(records, format="openai-chat")
        history.redact(0, reason="asked to")
        (*others, last) = history.export()
        assert "swordfish" not in json.dumps(others)
        assert last == records[-1], "its event shows the text, so nothing is gained by taking the record"
        history.redact(3, reason="asked to")
        histories.maintenance.vacuum()
        assert "swordfish" not in json.dumps(list(history.export()))
        assert "swordfish" not in repr(list(history.events()))
    assert bytes_left(tmp_path, ["swordfish"]) == []


def test_a_redaction_takes_the_records_that_hold_what_a_tool_read_in_another_form():
    """Claude Code numbers the lines of a file for the model, and keeps it whole beside a later edit of any line."""
    path = f"/{'a-long-name-of-a-folder/' * 4}notes.txt"
    lines = [f"{2020 + each}-01-02 the {each}th guest has the word {chr(97 + each) * 9}" for each in range(12)]
    whole, numbered = "\n".join(lines), "\n".join(f"{each + 1:6}→{line}" for each, line in enumerate(lines[:6]))
    edit = "The file was changed:\n     1→2020-01-02 nobody"
    results = [
        (numbered, {"file": {"filePath": path, "content": whole}}),
        (edit, {"filePath": path, "oldString": lines[0], "originalFile": f"by hand:\n{whole}"}),
        (edit, {"filePath": path, "structuredPatch": [{"lines": [f" {line}" for line in lines]}]}),
        ("2 files", {"filePath": path, "stdout": "2 files"}),
    ]
    records: list[dict[str, Any]] = []
    for number, (content, result) in enumerate(results):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Tool", "input": {"file_path": path}}
        said = {"id": f"m{number}", "role": "assistant", "model": "m", "content": [use]}
        told = {"type": "tool_result", "tool_use_id": f"t{number}", "content": content}
        above = records[-1]["uuid"] if records else None
        beside = {"sessionId": "s", "cwd": path, "timestamp": f"2026-01-02T03:04:0{number}.000Z"}
        records += [
            {"type": "assistant", "uuid": f"a{number}", "parentUuid": above, "message": said} | beside,
            {"type": "user", "uuid": f"u{number}", "parentUuid": f"a{number}"}
            | {"message": {"role": "user", "content": [told]}, "toolUseResult": result}
            | beside,
        ]
    with api.open("memory:") as histories:
        history = histories["c"]
        history.append_records(records, format="claude-code")
        history.redact(1, reason="asked to")
        exported = list(history.export("claude-code"))
        assert [line for line in lines if line[11:] in json.dumps(exported)] == []
        assert [record for record in exported if record in records] == [records[2], records[4], *records[6:]]


def test_a_redaction_of_a_long_text_does_not_hold_each_part_of_it():
    long = "\n".join(f"the guest with number {number} came in {number % 97} boats" for number in range(6_000))
    with api.open("memory:") as histories:
        history = histories["c"]
        records = [{"role": "user", "content": text} for text in (long, f"{long} ")]
        history.append_records(records, format="openai-chat")
        size = len(long)
        tracemalloc.start()
        try:
            history.redact(0, reason="asked to")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 120 * size


def test_a_redaction_leaves_the_records_that_share_only_what_many_hold():
    with api.open("memory:") as histories:
        (history,) = histories.import_(SAMPLE)
        for event_id in (7, 145, 188):  # results of commands in the folder that each command has
            history.redact(event_id, reason="asked to")
        lost = [event.id for event in history.events() if event.redacted is not None and event.redacted.record]
        assert lost == [5, 144, 187], "those of their calls"


def escaped(text: str):
    return f"\\u{ord(text[0]):04x}{text[1:]}"


def packed(text: str):
    return b64encode(f"my key is {text}".encode()).decode()


@pytest.mark.parametrize("held", [str, "a{}".format, "ab{}".format, escaped, packed])
def test_a_text_is_found_in_base64(foldlog: Any, path: Path, held: Any):
    data = packed(held(SWORDFISH))
    with api.open(path) as histories:
        history = histories["packed"]
        part = {"type": "file", "file": {"file_data": f"data:x/y;base64,{data}"}}
        history.append({"role": "user", "content": [part]})
        history.append({"role": "user", "content": "nothing"}, documents={"state": {"values": data.rstrip("=")}})
    chosen = ("--matching", SWORDFISH, "--reason", "asked to", "--yes", "--db", path)
    receipts = foldlog("redact", "packed", *chosen, "--json").document["receipts"]
    assert sorted(event for each in receipts for event in each["event_ids"]) == [0, 2]


def test_the_command_says_which_records_go_before_and_after_it_redacts(foldlog: Any, with_forks: Path):
    chosen = ("--matching", SWORDFISH, "--reason", "asked to")
    foldlog("redact", "damaged", 3, "--yes", "--reason", "first")  # whose record is gone now
    for more in (["c", 1], ["c", "--matching", SWORDFISH]):
        ran = foldlog("redact", *more, "--dry-run", "--reason", "asked to")
        assert "sound: 1 imported record too, which may repeat the content, of events that stay: 3" in ran.out, more
        assert "damaged:" not in ran.out
    assert "imported record too" not in foldlog("redact", *chosen, "--dry-run").out, "it is found itself"
    told = foldlog("redact", "c", 1, "--dry-run", "--reason", "asked to", "--json").document["records"]
    assert told == [{"conversation": "sound", "event_ids": [3]}]
    ran = foldlog("redact", "c", "--matching", SWORDFISH, "--yes", "--reason", "asked to")
    assert "1 event redacted and 1 imported record of others" in ran.err
    assert "erased the record of event 3: asked to" in foldlog("log", "sound").out


@pytest.mark.parametrize("key", [None, "00" * 32])
def test_a_redaction_takes_the_records_of_forks_that_repeat_the_content(tmp_path: Path, key: str | None):
    """Each fork has a record of its own, which the next one shares: the fork's exports give back none of them."""
    secret = "the password is swordfish"
    said = {"id": 0, "source": "user", "action": "message", "args": {"content": secret}}
    with api.open(tmp_path / "v0.db", keys=None if key is None else api.KeyRing(key)) as histories:
        history = histories["c"]
        history.append_records([said], format="openhands-v0")
        forks = []
        for number in (1, 2):
            forks.append((forks or [history])[-1].fork(id=f"fork {number}"))
            args = {"content": "done", "log": f"{number}: {secret}"}
            record = {"id": number, "source": "agent", "action": "message", "args": args}
            forks[-1].append_records([record], format="openhands-v0")
        (former,) = forks[0].events(1, 2)
        with pytest.raises(InvalidArgument, match="has no event -2"):
            history.redact(-2, reason="asked to", by="me")
        with pytest.raises(InvalidArgument, match="the reason is empty"):
            history.redact(0, reason=" ", by="me")
        assert list(forks[0].events(1, 2)) == [former], "a call that is refused changes nothing"
        assert history.redact(0, reason="asked to", by="me").forks == ("fork 1", "fork 2")
        for fork in forks:
            assert secret not in json.dumps(list(fork.export()))
            assert secret not in repr([event.origin for event in fork.events()])
            assert {event.content for event in fork.events() if isinstance(event, Message)} == {"[redacted]", "done"}
        assert not any(verdict.findings for verdict in Maintenance(histories.store).verify())


def _v0(number: int, content: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "source": "agent", "action": "message", "args": {"content": content, **more}}


SWORDFISH = "the password is swordfish"


@pytest.fixture
def with_forks(tmp_path: Path) -> Path:
    """An imported conversation and two forks, in which the records of later events repeat event 1."""
    path = tmp_path / "foldlog.db"
    with api.open(path) as histories:
        history = histories["c"]
        history.append_records([_v0(0, "word"), _v0(1, SWORDFISH)], format="openhands-v0")
        for name in ("sound", "damaged"):  # in this order the damaged one is read first
            fork = history.fork(id=name)
            fork.append_records([_v0(2, "word on"), _v0(3, "done", log=SWORDFISH)], format="openhands-v0")
    return path


@pytest.mark.parametrize("conversation", ["c", "damaged"])
def test_a_damaged_event_beside_it_does_not_keep_an_imported_event_from_redaction(
    foldlog: Any, with_forks: Path, conversation: str
):
    with open_store(f"sqlite:///{with_forks}") as store:
        damage(store, conversation, 0 if conversation == "c" else 2)
    ran = foldlog("redact", "c", "1", "--yes", "--reason", "asked to", "--json")
    assert ran.status == 1
    [named] = ran.document["holders"]
    assert named.startswith(f"conversation {conversation!r}, event ")
    assert f"the record of an event may still hold the content, because it cannot be read: {named[:40]}" in ran.err
    with api.open(with_forks) as histories:
        (event,) = histories["c"].events(1, 2)
        assert getattr(event, "content", None) == "[redacted]"
        for name in ("damaged", "sound"):
            assert SWORDFISH not in repr(list(histories[name].events(3))), "what is after it is taken"


def test_a_fork_that_is_erased_while_records_are_looked_for_does_not_stop_a_redaction(
    with_forks: Path, monkeypatch: Any
):
    with api.open(with_forks) as histories:
        really = _matching.records_with

        def meanwhile(*given: Any) -> list[int]:
            if not histories.store.conversation("damaged").erased_at:
                histories.erase("damaged", reason="asked to")
            return really(*given)

        monkeypatch.setattr(_matching, "records_with", meanwhile)
        assert histories["c"].redact(1, reason="asked to").forks == ("sound",)
        assert SWORDFISH not in repr(list(histories["sound"].events()))


def test_a_record_that_a_fork_appends_while_records_are_looked_for_goes_too(with_forks: Path, monkeypatch: Any):
    with api.open(with_forks) as histories:
        really, fork = _matching.records_with, histories["sound"]

        def meanwhile(*given: Any) -> list[int]:
            found = really(*given)
            if found == [3] and fork.version() == 4:
                fork.append_records([_v0(4, "late", log=SWORDFISH)], format="openhands-v0")
            return found

        monkeypatch.setattr(_matching, "records_with", meanwhile)
        histories["c"].redact(1, reason="asked to")
        assert fork.version() > 4
        assert SWORDFISH not in repr(list(fork.events())) + json.dumps(list(fork.export()))
        assert not any(verdict.findings for verdict in Maintenance(histories.store).verify())
