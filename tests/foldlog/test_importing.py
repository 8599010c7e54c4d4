"""Importing into a store: under which name, and what becomes of histories that an earlier version imported."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from foldlog import open as open_histories
from foldlog._cli.histories import import_
from foldlog._formats import registry
from foldlog._formats.files.found import Found
from foldlog._formats.files.naming import Name
from foldlog._formats.files.readers import held_in
from foldlog._formats.sources import Source, Sources
from foldlog._importing import import_source
from foldlog._importing.known import WasRedacted
from foldlog._reports.overview import near_the_ends
from foldlog._seen_files import SeenFiles
from foldlog.eventstore import (
    CondensationAction,
    Documents,
    HistoryDiverged,
    InvalidArgument,
    Message,
    Origin,
    Store,
    codec,
    open_store,
)
from foldlog.eventstore.log import importing
from foldlog.eventstore.maintenance.redact import redact
from foldlog.formats import FORMATS, RecordEncoder, decode, encode, open_sources
from tests.foldlog.records import CORPUS, records_of
from tests.how_many import some

GOLDEN = Path(__file__).parent.parent / "golden" / "imports"
EARLIER = [json.loads(line) for path in sorted(GOLDEN.glob("*.jsonl")) for line in path.read_text().splitlines()]
"""Records, and the events that an earlier version stored of them (``tests/golden/make.py``): no longer these bytes."""


def chat(*texts):
    return [{"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate(texts)]


def lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def corpus(format, count=20):
    """The first lines of a format's corpus that are records."""
    lines = (CORPUS / f"{format}.jsonl").read_text().splitlines()
    return [line for line in lines if line.strip() and '"problem"' not in line][:count]


@pytest.fixture
def log(foldlog, tmp_path):
    """``log(format, lines)``: write a log, with some of its lines cut, and import it; return what became of it."""

    def imported(format, text, *torn, **options):
        written = [line[:9] if place in torn else line for place, line in enumerate(text)]
        (tmp_path / "c.jsonl").write_text("\n".join(written) + "\n")
        (one,) = foldlog("import", "c.jsonl", "--format", format, "--json").document["imported"]
        return one

    return imported


def ids(foldlog):
    return [row["conversation"] for row in foldlog("list", "--json").document["conversations"]]


@pytest.fixture
def store():
    with open_store("memory:") as opened:
        yield opened


# -- names ------------------------------------------------------------------------------------------------------------


def test_files_of_one_name_have_names_that_another_file_does_not_change(foldlog, tmp_path):
    for name in ("b", "c"):
        lines(tmp_path / "runs" / name / "events.jsonl", chat(name))
    assert foldlog("import", "runs").status == 0
    assert ids(foldlog) == ["runs/b/events", "runs/c/events"]
    lines(tmp_path / "runs" / "a" / "events.jsonl", chat("a"))
    again = foldlog("import", "runs", "--json").document["imported"]
    assert [(one["conversation"], one["added"]) for one in again] == [
        ("runs/a/events", 1),
        ("runs/b/events", 0),
        ("runs/c/events", 0),
    ]
    for place in ("kite/kite", "kite/other", "other"):  # one is called as its folder
        lines(tmp_path / "all" / f"{place}.jsonl", chat(place))
    lines(tmp_path / "two.jsonl", [{"session_id": "s", "history": chat(text)} for text in ("x", "y")])
    for _ in range(2):
        foldlog("import", "all", "two.jsonl")
        assert ids(foldlog)[:3] + ids(foldlog)[-2:] == ["all/kite", "all/kite/other", "all/other", "s", "s#2"]


def test_a_second_run_of_a_benchmark_is_imported_beside_the_first(foldlog, tmp_path):
    for run in ("1", "2"):
        tasks = [{"instance_id": f"task-{n}", "history": chat(f"run {run} of {n}")} for n in range(2)]
        lines(tmp_path / "runs" / run / "output.jsonl", tasks)
        assert foldlog("import", f"runs/{run}/output.jsonl").status == 0
    assert ids(foldlog) == [f"{run}/output:task-{n}" for run in (1, 2) for n in range(2)]


def test_a_prefix_goes_before_each_name(foldlog, tmp_path):
    lines(tmp_path / "a.jsonl", chat("one"))
    foldlog("import", "a.jsonl")
    lines(tmp_path / "a.jsonl", chat("two"))
    refused = foldlog("import", "a.jsonl")
    assert refused.status == 1
    assert (
        "it is another conversation; import it under another id: 'foldlog import a.jsonl --prefix again/'"
        in refused.err.replace("\n", " ")
    )
    assert foldlog("import", "a.jsonl", "--prefix", "second/").status == 0
    assert ids(foldlog) == ["a", "second/a"]
    assert "leave out --prefix" in foldlog("import", "a.jsonl", "--prefix", "x", "--conversation", "y").err


def test_the_same_history_is_recognized_wherever_it_is_named_from(foldlog, tmp_path, monkeypatch):
    lines(tmp_path / "runs" / "a" / "kite.jsonl", chat("one", "two", "three"))
    foldlog("import", "runs")
    for path in ("runs/a", "runs/a/kite.jsonl", tmp_path):
        again = foldlog("import", path, "--json").document["imported"]
        assert [(one["conversation"], one["added"]) for one in again] == [("runs/a/kite", 0)], path
    lines(tmp_path / "runs" / "a" / "kite.jsonl", chat("one", "two", "three", "four"))
    assert foldlog("import", "runs/a", "--json").document["imported"][0]["added"] == 1


@pytest.mark.parametrize(
    "first, then, edited", [("a", "a/x.jsonl", 0), ("a/x.jsonl", "a", 0), ("a/x.jsonl", "b", 0), ("a", "a/x.jsonl", 1)]
)
def test_a_fork_is_made_under_each_name_of_a_file(histories, tmp_path, monkeypatch, first, then, edited):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "a" / "x.jsonl", chat("one", "two", "three", "four"))
    (history,) = histories.import_(first)
    if not edited:
        history.append(Message(source="user", content="of another hand"))
    lines(tmp_path / "a" / "x.jsonl", chat("one", "two", "three", "edited" if edited else "four", "five"))
    if then == "b":
        (tmp_path / "a").rename(then)
    for path in (then, f"{then[:1]}/x.jsonl", then[:1]):
        assert [each.id for each in histories.import_(path)] == [f"{history.id}@{4 - edited}"]
    assert [(each, len(histories[each])) for each in histories] == [
        (history.id, 5 - edited),
        (f"{history.id}@{4 - edited}", 5),
    ]


# -- histories that an earlier version imported -----------------------------------------------------------------------


def by_other_names(store, *named):
    for name, records in named:
        store.ingest(name, decode(records, "openai-chat"))


def test_what_cannot_be_read_of_a_history_under_its_former_name_is_told(foldlog, tmp_path):
    path = tmp_path / "runs" / "1" / "kite.jsonl"
    lines(path, chat("a", "b", "c"))
    assert foldlog("import", "runs").status == 0
    lines(path, chat("a", "b", "c", "d", "e"))
    path.write_text(f"{path.read_text()}{{torn")
    ran = foldlog("import", "runs/1")
    assert (ids(foldlog), "kite.jsonl:6: not JSON" in ran.err) == (["runs/1/kite"], True)


def test_a_history_under_its_name_below_another_folder_is_continued_and_not_one_that_only_begins_alike(tmp_path, store):
    texts = {"1": "abc", "2": "def", "3": "ghij", "4": "klm"}
    by_other_names(store, ("x", chat(*"abc")), ("x#2", chat(*"def")), ("x#3", chat(*"ghi")), ("x#4", chat(*"kl")))
    for folder in texts:
        lines(tmp_path / folder / "x.jsonl", chat(*texts[folder]))
    imported = [import_source(store, source)[:3] for source in open_sources([tmp_path])]
    assert imported == [("x", 0, 3), ("x#2", 0, 3), ("x#3", 1, 4), (f"{tmp_path.name}/4/x", 3, 3)]


def test_a_conversation_of_another_format_is_another_history(tmp_path, store):
    """The simulation saw it refused as an unknown format."""
    store.ingest("c", [Message(source="user", content=text, origin=Origin(format="other", id=text)) for text in "ab"])
    lines(tmp_path / "c.jsonl", chat("a", "b", "c"))
    (source,) = open_sources([tmp_path], "anthropic-messages")
    with pytest.raises(HistoryDiverged):
        import_source(store, source, "c")


BLOCKS = [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}]},
]
ITEMS = [
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
]
CALLS = [
    {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
]


@pytest.mark.parametrize(
    "begins, grows, as_, then",
    [
        (chat("list"), ITEMS, "openai-chat", "openai-responses"),
        (chat("list", "Shall I?", "yes"), BLOCKS, "openai-chat", "anthropic-messages"),
        ([*chat("list"), *BLOCKS], CALLS, "anthropic-messages", "openai-chat"),
        (chat("list"), [{**each, "agent": "main"} for each in chat("a", "b", "c")], "openai-chat", "swe-agent"),
    ],
)
def test_a_log_that_proves_to_be_of_another_format_is_read_again(histories, tmp_path, begins, grows, as_, then):
    def imported(histories, *records):
        """Import a log: return its conversation, its version, and what people and models see of it."""
        lines(tmp_path / "c.jsonl", records)
        problems = []
        (history,) = histories.import_(tmp_path / "c.jsonl", findings=problems.append)
        overview = near_the_ends(histories.store, histories.store.conversation(history.id))
        assert (problems, len(histories)) == ([], 1)
        seen = overview.format, overview.events, [*history.export(view=True)], [*history.export()]
        assert seen[-1] == [*encode(history.events(), overview.format)]
        return history.version(), seen

    last, more = len(begins), json.loads(json.dumps(grows[-2:]).replace('1"', '2"'))
    assert imported(histories, *begins)[1][0] == as_
    version, seen = imported(histories, *begins, *grows)
    assert (version, seen[0], seen[-1]) == (2 * last + 1 + len(grows), then, [*begins, *grows])
    assert imported(histories, *begins, *grows) == imported(histories, *begins) == (version, seen)
    version, seen = imported(histories, *begins, *grows, *more)
    assert version == 2 * last + 1 + len(grows) + len(more)
    with open_histories("memory:") as whole:
        assert seen == imported(whole, *begins, *grows, *more)[1]


@pytest.mark.parametrize("change", ["attributes", "retract", "redact"])
def test_a_log_is_not_read_again_where_another_hand_wrote_or_something_is_redacted(histories, tmp_path, change):
    lines(tmp_path / "c.jsonl", chat("list", "Shall I?"))
    (history,) = histories.import_(tmp_path / "c.jsonl")
    if change == "attributes":
        history.set_attributes(title="mine")
    elif change == "retract":
        history.retract(1)
    else:
        history.redact(0, reason="asked for")
    lines(tmp_path / "c.jsonl", [*chat("list", "Shall I?"), *BLOCKS])
    with nullcontext() if change == "attributes" else pytest.raises(HistoryDiverged):
        list(histories.import_(tmp_path / "c.jsonl"))


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "aider"])  # whose sessions need its own heading
def test_two_exported_conversations_are_two_conversations(histories, tmp_path, format):
    """Formats whose records name a session had one name for all: the second took back the events of the first."""
    with open_histories("memory:") as ours:
        for turns in (1, 2):
            for name in ("ann", "bob"):
                ours[name].append(chat(f"I am {name}", "hi"))
                lines(tmp_path / f"{name}.jsonl", ours[name].export(format))
                list(histories.import_(tmp_path / f"{name}.jsonl", format=format))
                assert len(histories) == (1 if (turns, name) == (1, "ann") else 2)


def test_two_exports_of_one_session_are_refused_with_what_helps(histories, tmp_path):
    histories["c"].append(chat("hello", "hi"))
    for format in ("codex", "gemini-cli"):
        lines(tmp_path / f"{format}.jsonl", histories["c"].export(format))
    (first,) = histories.import_(tmp_path / "codex.jsonl")
    with pytest.raises(HistoryDiverged, match=f"'{first.id}'.* another id, with conversation=ID"):
        histories.import_(tmp_path / "gemini-cli.jsonl")
    assert [each.id for each in histories.import_(tmp_path / "gemini-cli.jsonl", conversation="other")] == ["other"]


def test_what_was_erased_does_not_come_back_under_a_new_name(foldlog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///foldlog.db") as opened:
        by_other_names(opened, ("x", chat("a", "b", "c")))
    assert foldlog("erase", "x", "--yes", "--reason", "asked to").status == 0
    lines(tmp_path / "1" / "x.jsonl", chat("a", "b", "c"))
    ran = foldlog("import", "1")
    assert ran.status == 1
    assert "its events are gone; delete the file, or leave it out" in ran.err, "not: use another id"
    assert ids(foldlog) == ["x"]


KEY = b64encode(bytes(range(32))).decode()
AGAIN = {
    "the file alone": ("x.jsonl", [], 0),
    "the folder renamed": ("later", [], 0),
    "the file renamed": ("y.jsonl", [], 0),
    "a prefix": ("later", ["--prefix", "p/"], 0),
    "a name": ("x.jsonl", ["--conversation", "y"], 1),
}


BEFORE = {
    "plain": ([], [0]),
    "encrypted": ([], [0, 2]),
    "grown": ([], [2]),
    "attributes": (["attributes", "runs/x", "--set", "app=x"], [0]),
    "retracted": (["retract", "runs/x", "--to", 1], [2]),
    "forked": (["fork", "runs/x", "of-x", "--at", 3], [2]),
}


@pytest.mark.parametrize("store", BEFORE)
def test_what_was_redacted_does_not_come_back_under_a_new_name(foldlog, tmp_path, monkeypatch, store):
    if store == "encrypted":
        monkeypatch.setenv("FOLDLOG_KEY", KEY)
    texts = ["marigold one", "two", "marigold three", "four"]
    lines(tmp_path / "runs" / "x.jsonl", chat(*texts))
    foldlog("import", "runs")
    command, events = BEFORE[store]
    for done in filter(None, [command, ["redact", "runs/x", *events, "--reason", "asked to", "--yes"]]):
        assert foldlog(*done).status == 0, done
    texts += ["five"] if store == "grown" else []
    before = ids(foldlog)
    for how, (path, options, status) in AGAIN.items():
        lines(tmp_path / path / "x.jsonl" if path == "later" else tmp_path / path, chat(*texts))
        ran = foldlog("import", path, *options, "--json")
        assert (ran.status, ids(foldlog)) == (status, before), how
        assert [one["conversation"] for one in ran.document["imported"]] == ["y" if status else "runs/x"], how
    assert "It is the same history: import it without --conversation" in ran.err
    with open_histories("foldlog.db") as histories:
        assert not {texts[event] for event in events} & {
            getattr(e, "content", "") for e in histories["runs/x"].events()
        }
        assert store != "grown" or histories["runs/x"].view()[-1].content == "five"


_WITHOUT_IDS = "openai-chat", "openai-responses", "langchain", "swe-agent", "agent-framework"
"""Formats without times and long ids: where too little is left, an import is refused."""


@pytest.mark.parametrize("redacted_by", ["event", "history"])
@pytest.mark.parametrize(
    "name, live", [(name, live) for name in FORMATS for live in {False, registry.FORMATS[name].time is None}]
)
def test_a_redacted_history_of_each_format_is_recognized_under_another_name(name, live, redacted_by, histories):
    """A redaction by the history takes the records of other events that repeat the content. These may be redacted
    afterwards.
    """
    records, store = records_of(name), histories.store
    first, again = (
        Source(Found(Name(called), registry.FORMATS[name], Path("x"), held_in(Path("x"), 1, records)))
        for called in "cd"
    )
    version = store.ingest("c", decode(records, name))[1] if live else import_source(store, first).version
    for event_id in some(range(version), 4 if redacted_by == "event" else 3):
        if redacted_by == "event":
            redact(store, "c", event_id, reason="asked to", by="me")
        else:
            histories["c"].redact(event_id, reason="asked to")
        shown = sum(event.shown and not event.redacted for event in histories["c"].events())
        is_refused = shown < 3 and name in _WITHOUT_IDS
        with pytest.raises(WasRedacted, match="Too little else is left") if is_refused else nullcontext():
            assert import_source(store, again)[:2] == ("c", 0), event_id


def test_what_was_redacted_does_not_come_back_where_another_hand_wrote_and_the_source_has_grown(foldlog, tmp_path):
    lines(tmp_path / "runs" / "x.jsonl", chat("one", "marigold two", "three"))
    foldlog("import", "runs")
    with open_histories("foldlog.db") as histories:
        histories["runs/x"].append(Message(source="user", content="by hand"))
        histories["runs/x"].redact(1, reason="asked to")
    lines(tmp_path / "x.jsonl", chat("one", "marigold two", "three", "four"))
    ran = foldlog("import", "x.jsonl")
    assert (ran.status, ids(foldlog)) == (1, ["runs/x"])
    assert "if it has what was redacted, erase 'runs/x' first" in ran.err


@pytest.mark.parametrize(
    "how, told, options",
    [
        ("resumed", "a session that was resumed in another file: take the records of these events out", []),
        ("edited", "Records of it were edited or are missing: import the history with", ["--prefix", "p/"]),
        ("damaged", "Some records of it cannot be read: repair them", ["--prefix", "p/"]),
        ("named", "the same history: import it without --conversation", ["--conversation", "y"]),
    ],
)
def test_an_import_with_what_was_redacted_is_refused_with_advice_that_helps(foldlog, tmp_path, how, told, options):
    def session(name: str, *texts: str) -> list[dict[str, object]]:
        before = [None, *(f"u{at}" for at in range(len(texts)))]
        return [
            {"type": "user", "uuid": f"u{at}", "parentUuid": before[at], "timestamp": f"2026-11-02T09:0{at}Z"}
            | {"sessionId": name, "message": {"role": "user", "content": text}}
            for at, text in enumerate(texts)
        ]

    texts = ["my key is sk-4111", "two", "three", "four", "five"]
    whole = session("first", *texts)
    lines(tmp_path / "first.jsonl", whole[:4])
    for command in (["import", "first.jsonl"], ["redact", "first", 0, "--reason", "x", "--yes"]):
        assert foldlog(*command).status == 0
    (tmp_path / "first.jsonl").unlink()
    given, mended = {
        "resumed": (resumed := session("resumed", *texts), resumed[1:]),
        "edited": (session("first", *texts[:2], "drei", *texts[3:]), whole),
        "damaged": ([*whole[:2], 5, *whole[3:]], whole),
        "named": (whole, whole),
    }[how]
    lines(tmp_path / "again.jsonl", given)
    ran = foldlog("import", "again.jsonl", *options)
    assert (ran.status, ids(foldlog)) == (1, ["first"])
    assert "events of it were redacted (0), which would come back in" in ran.err
    assert ran.err.count(told) == 1
    lines(tmp_path / "again.jsonl", mended)
    assert foldlog("import", "again.jsonl", *(options if how != "named" else [])).status == 0
    assert ids(foldlog) == ["first", *(["resumed"] if how == "resumed" else [])]


@pytest.mark.parametrize("format", ["openhands-v0", "openhands-v1"])
def test_a_number_that_is_missing_among_the_files_of_events_is_a_record_that_cannot_be_read(foldlog, tmp_path, format):
    lines = [line for line in (CORPUS / f"{format}.jsonl").read_text().splitlines() if line.strip()][:12]
    name = "{}.json" if format == "openhands-v0" else "event-{:05}-a.json"
    events = tmp_path / "s" / "events"
    events.mkdir(parents=True)
    for number, line in enumerate(lines, 2):  # numbers may start above 0
        (events / name.format(number)).write_text(line)
    gone = events / name.format(7)

    def imported():
        ran = foldlog("import", "s", "--format", format, "--json")
        (one,) = ran.document["imported"]
        is_marked = "1 record of its source could not be read" in foldlog("list").out
        return one["conversation"], one["added"], ("7.json: cannot be read: No such file" in ran.err, is_marked)

    gone.unlink()
    conversation, added, found = imported()
    assert (conversation, added > 0, found) == ("s", True, (True, True))
    gone.write_text(lines[5])
    assert imported()[2] == (False, False)
    assert imported() == ("s", 0, (False, False))
    assert parsed(foldlog("export", "s").out) == parsed("\n".join(lines))
    stats = foldlog("stats", "--json").document
    gone.unlink()
    assert imported() == ("s", 0, (True, False))
    assert parsed(foldlog("export", "s").out) == parsed("\n".join(lines))
    assert (ids(foldlog), foldlog("stats", "--json").document) == (["s"], stats)
    (events / name.format(13)).rename(events / name.format(10**9))  # no program numbers records so one by one
    assert imported()[2] == (False, False)


def goes_on_as_one(foldlog, write, states, *options):
    """Import a path in one state after the other, and return what was told each time: there is one conversation."""
    told = []
    for state in states:
        ran = foldlog("import", write(state), "--json", *options)
        told += [finding for one in ran.document["imported"] for finding in one["findings"]]
        assert (len(ids(foldlog)), ran.status) == (1, 0), (state, ran.document)
    return told


@pytest.mark.parametrize("format, beside", [("openhands-v0", "metadata.json"), ("openhands-v1", "base_state.json")])
@pytest.mark.parametrize("first, called", [("whole", "own"), ("torn", "kite"), ("gone", "kite")])
@pytest.mark.parametrize("prefix", ["", "again/"])
def test_a_history_whose_name_stands_beside_it_goes_on_while_that_is_torn_or_gone(
    foldlog, tmp_path, format, beside, first, called, prefix
):
    records, events = records_of(format), tmp_path / "kite" / "events"
    events.mkdir(parents=True)
    name, file = json.dumps({"conversation_id": "own"}), tmp_path / "kite" / beside

    def write(state):
        text, count = state
        for number, record in enumerate(records[:count]):
            (events / f"event-{number:05}-a.json").write_text(json.dumps(record))
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        return "kite"

    texts = {"whole": name, "torn": name[:9], "empty": "", "gone": None, "a list": "[]"}
    states = [(texts[state], number) for number, state in enumerate((first, *texts, "whole"), 1)]
    told = goes_on_as_one(foldlog, write, states, "--prefix", prefix)
    assert ids(foldlog) == [f"{prefix}{called}"]
    lost = [each for each in told if beside in each and f"it goes on as conversation '{prefix}own'" in each]
    assert len(lost) == (4 if called == "own" else 0)
    torn = [each.removeprefix(f"{file}: ") for each in told if each.startswith(f"{file}: ")]
    problems = ["not JSON at character 1: Unterminated string", "empty", "expected an object, found an array"]
    assert torn == problems[:1] * (first == "torn") + problems


def test_a_document_that_ends_before_its_name_goes_on_and_says_both(foldlog, tmp_path):
    whole = json.dumps({"messages": chat("a", "b", "c"), "conversation_id": "own"})

    def write(size):
        (tmp_path / "kite.json").write_text(whole[:size])
        return "kite.json"

    told = goes_on_as_one(foldlog, write, (None, -9, None))
    assert told == [
        "kite.json:1: not JSON: the file ends in the middle of a value",
        "kite.json: its name is no longer in it; it goes on as conversation 'own'",
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("torn", [(1, 2), (0,), (0, 2)])
def test_a_log_whose_first_line_is_torn_or_mended_is_one_conversation(foldlog, tmp_path, format, torn):
    whole = (CORPUS / f"{format}.jsonl").read_text().splitlines()

    def write(state):
        first = whole[0][:9] if state in torn else whole[0]
        (tmp_path / "kite.jsonl").write_text("\n".join([first, *whole[1 : len(whole) - 2 + state]]) + "\n")
        return "kite.jsonl"

    told = goes_on_as_one(foldlog, write, range(4), "--format", format)
    assert any("kite.jsonl:1" in each for each in told)


def test_a_mended_log_of_which_events_were_redacted_is_refused_with_what_to_do(foldlog, tmp_path):
    lines(tmp_path / "x.jsonl", chat("one", "two", "three", "marigold", "five"))
    whole = (tmp_path / "x.jsonl").read_text()
    (tmp_path / "x.jsonl").write_text(whole.replace("two", "\n"))
    foldlog("import", "x.jsonl")
    foldlog("redact", "x", "2", "--reason", "asked to", "--yes")
    (tmp_path / "x.jsonl").write_text(whole)
    ran = foldlog("import", "x.jsonl")
    assert (ran.status, "another conversation" in ran.err, ids(foldlog)) == (1, False, ["x"])
    assert "nothing was added; erase 'x', import this source under another id with --prefix" in ran.err
    with open_histories("foldlog.db") as histories:
        assert "marigold" not in repr(list(histories["x"].events()))
    foldlog("erase", "x", "--reason", "asked to", "--yes")
    again = foldlog("import", "x.jsonl", "--prefix", "again/", "--json").document["imported"]
    assert [(each["conversation"], each["added"]) for each in again] == [("again/x", 5)]


def test_a_damaged_event_of_the_store_keeps_no_other_source_out(foldlog, tmp_path):
    def chats(names, *texts):
        for name in names:
            lines = [json.dumps({"role": "user", "content": f"{text} of {name}"}) for text in texts]
            (tmp_path / "s" / f"{name}.jsonl").write_text("\n".join(lines))

    (tmp_path / "s").mkdir()
    chats("abc", "first", "second", "third")
    assert foldlog("import", tmp_path / "s", "--db", tmp_path / "s.db").status == 0
    store = (tmp_path / "s.db").read_bytes()
    (tmp_path / "s.db").write_bytes(store.replace(b"first of b", b"forst of b"))
    chats("abcd", "first", "second", "third", "fourth")
    again = foldlog("import", tmp_path / "s", "--db", tmp_path / "s.db")
    assert (again.status, "s/b', event 0: its checksum does not match" in again.err.replace("\n", " ")) == (1, True)
    with open_histories(tmp_path / "s.db") as histories:
        assert [histories[f"s/{name}"].version() for name in "abcd"] == [4, 3, 4, 4]


def test_an_import_goes_on_though_a_record_before_a_redacted_event_is_damaged(foldlog, tmp_path):
    """A damaged record takes the ids that it had away from later events of the source: of a call, and of its result."""
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "ls", "input": {}} for n in range(2)]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": text} for n, text in enumerate("xy")]
    contents = [("user", "one"), ("assistant", [calls[0]]), ("user", [results[0]]), ("assistant", [calls[1]])]
    contents += [("user", [results[1]]), ("user", "marigold"), ("assistant", "done")]
    log = [
        {"type": role, "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, "sessionId": "s"}
        | {"timestamp": f"2026-03-01T10:00:0{n}Z", "message": {"role": role, "content": content}}
        for n, (role, content) in enumerate(contents)
    ]
    lines(tmp_path / "s.jsonl", log[:-1])
    foldlog("import", "s.jsonl")
    for event in ("4", "5"):
        foldlog("redact", "s", event, "--reason", "asked to", "--yes")
    torn = [json.dumps(each)[: 20 if n == 1 else None] for n, each in enumerate(log)]
    for added in (1, 0):
        (tmp_path / "s.jsonl").write_text("\n".join(torn))
        (one,) = foldlog("import", "s.jsonl", "--json").document["imported"]
        assert (one["conversation"], one["added"], one["taken_back"]) == ("s", added, 0)
    lines(tmp_path / "s.jsonl", log)
    (one,) = foldlog("import", "s.jsonl", "--json").document["imported"]
    assert (one["conversation"], one["added"], one["taken_back"]) == ("s", 0, 0)


def test_a_value_that_is_no_record_leaves_the_stored_one_in_its_place(foldlog, tmp_path):
    head = {"sessionId": "s", "projectHash": "h", "startTime": "2026-03-01T10:00:00.000Z", "lastUpdated": "x"}
    said = [
        {"id": f"m{n}", "timestamp": f"2026-03-01T10:00:0{n}.000Z", "type": "user", "content": f"text {n}"}
        for n in range(6)
    ]
    for messages, added in ((said[:4], 6), ([said[0], 7, *said[2:]], 4), (said, 0)):
        (tmp_path / "session.json").write_text(json.dumps({**head, "messages": messages}))
        (one,) = foldlog("import", "session.json", "--format", "gemini-cli", "--json").document["imported"]
        names = [each["id"] for each in parsed(foldlog("export", "s").out) if "id" in each]
        assert (one["added"], names) == (added, [f"m{n}" for n in range(4 if added == 6 else 6)])


def test_a_log_that_goes_on_after_it_was_mended_and_redacted_adds_what_is_new(foldlog, tmp_path):
    texts = ["one", "two", "three", "marigold", "five"]
    lines(tmp_path / "x.jsonl", chat(*texts))
    whole = (tmp_path / "x.jsonl").read_text()
    for text in (whole.replace("two", "\n"), whole):
        (tmp_path / "x.jsonl").write_text(text)
        assert foldlog("import", "x.jsonl").status == 0
    foldlog("redact", "x", "--matching", "marigold", "--reason", "asked to", "--yes")
    for options in ((), ("--prefix", "again/")):
        texts.append("more")
        lines(tmp_path / "x.jsonl", chat(*texts))
        for added in (1, 0):
            (one,) = foldlog("import", "x.jsonl", *options, "--json").document["imported"]
            assert (one["conversation"], one["added"], one["taken_back"]) == ("x", added, 0)
    shown = parsed(foldlog("export", "x").out)
    assert [each["content"] for each in shown] == [text if text != "marigold" else "[redacted]" for text in texts]
    with open_histories("foldlog.db") as histories:
        assert "marigold" not in repr(list(histories["x"].events()))


@pytest.mark.parametrize("chosen", [("10",), ("4",), ("--matching", "marigold")])
def test_nothing_that_an_import_took_back_can_be_read_after_a_redaction(foldlog, tmp_path, chosen):
    texts = ["one", "two", "three", "four", "hi", "say marigold"]
    lines(tmp_path / "x.jsonl", chat(*texts))
    whole = (tmp_path / "x.jsonl").read_text()
    for text in (whole.replace("three", "\n"), whole):
        (tmp_path / "x.jsonl").write_text(text)
        assert foldlog("import", "x.jsonl").status == 0
    (tmp_path / "x.jsonl").unlink()
    reason = ("--reason", "asked to", "--yes")
    assert "2 events of 1 conversation to redact" in foldlog("redact", "x", *chosen, "--dry-run", *reason).out
    redacted = foldlog("redact", "x", *chosen, *reason)
    assert redacted.status == 0
    assert all(f"x: event {each} redacted at " in redacted.out for each in (4, 10))
    for command in (["log", "x"], ["show", "x", "4"], ["search", "marigold"], ["export", "x"]):
        assert "marigold" not in foldlog(*command).out
    with open_histories("foldlog.db") as histories:
        assert [event.id for event in histories["x"].events() if event.redacted] == [4, 10]


def test_an_import_goes_on_where_another_process_erases_what_it_is_compared_with(tmp_path, monkeypatch):
    lines(tmp_path / "x.jsonl", chat("one", "marigold two", "three"))
    like = SeenFiles.redacted_like

    def then_erased(self, source):
        found = like(self, source)
        histories.erase("a", reason="asked to")
        return found

    with open_histories("memory:") as histories:
        histories.import_(tmp_path / "x.jsonl", conversation="a")
        histories["a"].redact(1, reason="asked to")
        monkeypatch.setattr(SeenFiles, "redacted_like", then_erased)
        assert [each.id for each in histories.import_(tmp_path / "x.jsonl", conversation="b")] == ["b"]


def test_only_a_history_that_is_the_same_by_times_names_and_sizes_is_taken_for_a_redacted_one(foldlog, tmp_path):
    lines(tmp_path / "a.jsonl", chat("marigold", "two", "three"))
    lines(tmp_path / "b.jsonl", chat("another one", "two", "three"))
    lines(tmp_path / "c.jsonl", chat("marigold", "two", "other"))
    foldlog("import", "a.jsonl")
    foldlog("redact", "a", 0, "--reason", "asked to", "--yes")
    assert foldlog("import", "b.jsonl", "c.jsonl").status == 0
    assert ids(foldlog) == ["a", "b", "c"]


@pytest.mark.parametrize("folder", ["", "later/"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_history_that_differs_only_in_what_was_redacted_is_another_one(foldlog, tmp_path, folder, size):
    """Two runs of one task whose secrets are of one size. As long as the file of the first is there, it tells."""
    lines(tmp_path / "runs" / "x.jsonl", chat("pin 1111", "ok"))
    foldlog("import", "runs")
    foldlog("redact", "runs/x", 0, "--reason", "asked to", "--yes")
    lines(tmp_path / folder / "x.jsonl", chat("pin 2222", "ok", "go on")[:size])
    again = folder or "x.jsonl"
    (one,) = foldlog("import", again, "--json").document["imported"]
    assert (one["added"], ids(foldlog)) == (size, sorted(["runs/x", f"{folder}x"]))
    copied = chat("pin 1111", "ok", "since")[:size]
    lines(tmp_path / "y.jsonl", copied)
    assert foldlog("import", "y.jsonl").status == 0, "a copy, or what it has become"
    assert (len(ids(foldlog)), len(parsed(foldlog("export", "runs/x").out))) == (2, size)
    for gone in ("runs/x.jsonl", "y.jsonl"):
        (tmp_path / gone).unlink()
    lines(tmp_path / "z.jsonl", copied)
    ran = foldlog("import", "z.jsonl")
    assert (ran.status, "back in its place" in ran.err, len(ids(foldlog))) == (1, True, 2)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_redacted_does_not_come_back_from_records_whose_keys_have_another_order(histories, tmp_path, is_there):
    records = chat("one", "marigold", "three", "four")
    lines(tmp_path / "x.jsonl", records)
    histories.import_(tmp_path / "x.jsonl")
    histories["x"].redact(1, reason="asked to")
    if not is_there:
        (tmp_path / "x.jsonl").unlink()
    lines(tmp_path / "y.jsonl", [dict(reversed(each.items())) for each in records])
    with pytest.raises(WasRedacted):
        histories.import_(tmp_path / "y.jsonl")
    lines(tmp_path / "y.jsonl", chat("one", "another", "three", "four"))
    assert len(histories.import_(tmp_path / "y.jsonl")) == 1, "another history"


@pytest.mark.parametrize(
    "records",
    [
        chat("begun otherwise", "the marigold", "three", "four"),
        chat("one more before", "one", "the marigold", "three", "four"),
        [
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            *chat("one", "the marigold", "three", "four")[1:],
        ],
    ],
    ids=["two records in common", "other roles", "another form"],
)
def test_a_text_in_the_records_of_another_history_is_found_by_a_search_for_it(foldlog, tmp_path, records):
    lines(tmp_path / "x.jsonl", chat("one", "the marigold", "three", "four"))
    lines(tmp_path / "y.jsonl", records)
    redact = ("redact", "--matching", "marigold", "--reason", "asked to", "--yes", "--json")
    for file, found in (("x.jsonl", 1), ("y.jsonl", 1)):
        assert foldlog("import", file).status == 0
        (tmp_path / file).unlink()
        ran = foldlog(*redact)
        assert (ran.status, sum(len(each["event_ids"]) for each in ran.document["receipts"])) == (0, found)


def test_another_history_of_the_same_name_is_not_taken_for_a_redacted_one_nor_for_a_fork_of_it(foldlog, tmp_path):
    lines(tmp_path / "runs" / "x.jsonl", chat("pin 1111", "ok", "so", "on"))
    lines(tmp_path / "edited" / "runs" / "x.jsonl", chat("pin 1111", "ok", "so", "what"))
    lines(tmp_path / "other" / "runs" / "x.jsonl", chat("pin 222", "ok", "so", "what", "go on"))
    lines(tmp_path / "copy" / "runs" / "x.jsonl", chat("pin 1111", "ok", "so", "on", "since"))
    foldlog("import", "runs")
    foldlog("import", "edited/runs")
    foldlog("redact", "runs/x", 0, "--reason", "asked to", "--yes")
    ran = foldlog("import", "other/runs")
    assert (ran.status, "differs from event 0 on" in ran.err, ids(foldlog)) == (1, True, ["runs/x", "runs/x@3"])
    (one,) = foldlog("import", "copy/runs", "--json").document["imported"]
    assert (one["conversation"], one["added"]) == ("runs/x", 1)


def test_a_history_with_redacted_events_is_read_once_and_no_other_file_is(histories, tmp_path, monkeypatch):
    path, read, opened = tmp_path / "x.jsonl", [], []
    lines(path, chat("pin 1111", "ok"))
    histories.import_(path)
    histories["x"].redact(0, reason="asked to")
    lines(path, chat("pin 1111", "ok", "go on"))
    (source,) = open_sources([path])
    for of, name, calls in (Source, "decoded", read), (Sources, "__init__", opened):
        really = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *given, calls=calls, really=really: (calls.append(1), really(*given))[1])
    assert import_source(histories.store, source)[:3] == ("x", 1, 4)
    assert (len(read), len(opened)) == (1, 0)


def test_an_import_reads_a_redacted_conversation_once_for_all_files_that_begin_otherwise(
    histories, tmp_path, monkeypatch
):
    read, really = [], Store.events
    for number in range(3):
        lines(tmp_path / "a" / f"{number}.jsonl", chat("task", f"pin {number}", "ok"))
    for redacted in histories.import_(tmp_path / "a"):
        redacted.redact(1, reason="asked to")
    monkeypatch.setattr(Store, "events", lambda *given, **how: (read.append(given[1]), really(*given, **how))[1])
    for files in (2, 5):
        for number in range(files):
            lines(tmp_path / str(files) / f"{number}.jsonl", chat("task", f"no pin {number}", "so", f"pin {number}"))
        read.clear()
        assert len(histories.import_(tmp_path / str(files))) == files
        first_event, whole = 1, 1
        assert [read.count(f"a/{number}") for number in range(3)] == [first_event + whole] * 3


def test_an_import_knows_what_is_added_and_redacted_while_it_runs(histories, tmp_path, monkeypatch):
    texts, like, looked = ["one", "two", "three"], SeenFiles.redacted_like, []
    lines(tmp_path / "x.jsonl", chat(*texts))
    histories.import_(tmp_path / "x.jsonl")
    histories["x"].redact(0, reason="asked to")
    more = ["four", "five", "marigold", "six"]
    lines(tmp_path / "b" / "1.jsonl", chat("another", "one"))
    lines(tmp_path / "b" / "2.jsonl", chat("begun otherwise", *more))

    def after_another(self, source):
        looked.append(source.name)
        if looked == ["b/1", "b/2"]:
            lines(tmp_path / "x.jsonl", chat(*texts, *more))
            histories.import_(tmp_path / "x.jsonl")
            (tmp_path / "x.jsonl").unlink()
            histories["x"].redact(6, reason="asked to")
        return like(self, source)

    monkeypatch.setattr(SeenFiles, "redacted_like", after_another)
    with pytest.raises(WasRedacted):
        histories.import_(tmp_path / "b")
    assert sorted(histories) == ["b/1", "x"]


@pytest.mark.parametrize("chunk", [1, 1_000], ids=["staged", "in one transaction"])
@pytest.mark.parametrize("during", ["other", "y"])
def test_what_another_process_redacts_for_the_first_time_during_an_import_does_not_come_back(
    tmp_path, monkeypatch, chunk, during
):
    monkeypatch.setattr(importing, "CHUNK", chunk)
    url = f"sqlite:///{tmp_path}/a.db"
    for name, first in (("x", "one"), ("other", "another"), ("y", "one")):
        lines(tmp_path / f"{name}.jsonl", chat(first, "marigold", "three", "four"))

    def while_another_redacts(events):
        yield from events
        with open_histories(url) as elsewhere:
            elsewhere["x"].redact(1, reason="asked to")

    with open_store(url) as store:
        seen = SeenFiles(store)
        for name, as_ in (("x", "x"), ("other", "other"), ("y", "x")):
            (source,) = open_sources([tmp_path / f"{name}.jsonl"])
            watch = while_another_redacts if name == during else iter
            assert import_source(store, source, watch=watch, seen=seen).conversation == as_


@pytest.mark.parametrize("format", ["codex", "openhands-v0", "openhands-v1"])  # they have records of condensations
def test_a_log_that_was_recorded_and_condensed_is_the_same_as_long_as_it_does_not_go_on(histories, tmp_path, format):
    said = (Message(id=number, source="user", content=f"said {number}") for number in range(6))
    lines(tmp_path / "x.jsonl", records := list(encode(said, format)))
    histories["x"].append_records(records[:4], format=format)
    histories["x"].append(CondensationAction(forgotten_event_ids=(0,)))
    histories["x"].append_records(records[4:], format=format)
    (source,) = open_sources([tmp_path / "x.jsonl"], format)
    assert import_source(histories.store, source, "x").added == 0


class _Refusing(RecordEncoder):
    """A writer after any change."""

    def records(self, event):
        return pytest.fail("the writer was asked for an imported event")


@pytest.mark.parametrize("golden", EARLIER, ids=lambda golden: f"{golden['stored'][0][0]}-{golden['name']}")
def test_importing_again_what_an_earlier_version_imported_adds_nothing_and_no_writer_is_asked_for_it(
    golden, tmp_path, store, monkeypatch
):
    stored = [codec.decode(kind, schema, body.encode(), n) for n, (kind, schema, body) in enumerate(golden["stored"])]
    path = tmp_path / "kept.jsonl"
    lines(path, golden["records"])
    (source,) = open_sources([path])
    store.ingest(source.name, stored)
    assert import_source(store, source)[:3] == (source.name, 0, len(stored))
    format = next(event.origin.format for event in stored if event.origin is not None)
    monkeypatch.setitem(registry.FORMATS, format, replace(registry.FORMATS[format], encoder=_Refusing))
    assert json.dumps(list(encode(stored, format))) == json.dumps(golden["records"])


def test_there_are_golden_imports_of_every_format():
    formats = {row["stored"][-1][2].partition('"format":"')[2].partition('"')[0] for row in EARLIER}
    assert formats == {*FORMATS}


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_compressed_file_is_refused_with_what_to_do(foldlog, tmp_path):
    import gzip

    packed = gzip.compress(b"".join(json.dumps(record).encode() + b"\n" for record in chat("a")))
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    ran = foldlog("import", "a.jsonl.gz")
    assert (ran.status, ran.err) == (
        2,
        "foldlog: a.jsonl.gz: is compressed; decompress it, then import what comes out\n",
    )
    lines(tmp_path / "runs" / "b.jsonl", chat("b"))
    (tmp_path / "runs" / "a.jsonl.gz").write_bytes(packed)
    ran = foldlog("import", "runs")
    assert (ran.status, ids(foldlog)) == (1, ["runs/b"])
    assert "a.jsonl.gz: is compressed; decompress it" in ran.err


def test_a_log_that_its_program_compressed_is_the_same_history(foldlog, tmp_path, monkeypatch):
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.zst"
    lines(plain, records_of("codex"))
    assert foldlog("import", "a.jsonl", "--db", "plain.db").status == 0
    frames = [zstandard.compress(line) for line in plain.read_bytes().splitlines(keepends=True)]
    packed.write_bytes(b"".join(frames[:-1]))
    for path in (packed, tmp_path):  # as it was before, and beside the file that is written on
        assert foldlog("import", path).status == 0
    plain.unlink()
    packed.write_bytes(b"".join(frames))
    assert foldlog("import", ".", "--json").document["imported"][0]["added"] == 0
    exports = [foldlog("export", ids(foldlog)[0], "--db", f"{name}.db").out for name in ("foldlog", "plain")]
    assert exports[0] == exports[1]
    held = foldlog("redact", "--matching", "why is it torn", "--reason", "asked", "--yes")
    assert f"{packed} still holds the text" in held.err
    for rest, why in ((frames[0][:-9], "is cut off"), (b"no frame" * 9, "is damaged")):
        packed.write_bytes(b"".join(frames) + rest)
        assert why in foldlog("import", packed, "--db", "other.db").err
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert "it is compressed with zstd; pip install" in foldlog("import", packed, "--db", "other.db").err


def test_nul_bytes_that_a_crash_leaves_cost_no_line(foldlog, tmp_path):
    one, two, three = (json.dumps(record).encode() for record in chat("a", "b", "c"))
    (tmp_path / "a.jsonl").write_bytes(one + b"\n" + bytes(4096) + two + b"\n" + bytes(100) + b"\n" + three + bytes(9))
    (tmp_path / "b.json").write_bytes(b"[%b,%b,%b]" % (one, two, three) + bytes(4096))
    for path in ("a.jsonl", "b.json"):
        assert foldlog("import", path, "--json").document["imported"][0]["version"] == 3


def test_python_imports_and_exports_in_one_call(tmp_path):
    lines(tmp_path / "runs" / "a.jsonl", chat("a", "b"))
    lines(tmp_path / "runs" / "b.jsonl", [*chat("c", "d"), {"no": "event"}])
    findings = []
    with open_histories(tmp_path / "h.db") as histories:
        first, second = histories.import_(tmp_path / "runs", findings=findings.append)
        assert (first.id, second.id, len(findings)) == ("runs/a", "runs/b", 1)
        assert list(first.export()) == chat("a", "b")
        histories.import_(tmp_path / "runs", findings=findings.append)
        assert (first.version(), second.version()) == (2, 3)  # with the mark of the record that is missing
        with pytest.raises(InvalidArgument, match="conversation names one history"):
            histories.import_(tmp_path / "runs", conversation="x")
        assert list(histories["nobody"].export()) == []


def test_what_holds_nothing_says_so_alone_and_is_left_out_of_a_folder(foldlog, tmp_path):
    lines(tmp_path / "folder" / "kite.jsonl", chat("kite"))
    for name, content, why in (
        ("export.zip", b"PK\x03\x04rest", "is compressed; decompress it, then import what comes out"),
        (".aider.input.history", b"+hello", "aider writes its chats into .aider.chat.history.md"),
        (".aider.chat.history.md", b"#### hello", "holds no chat with a model"),
        ("a.md", b"# aider chat started at 2026-03-01 10:00:00\n", "holds no chat with a model"),
        ("a.json", b'{"messages": []}', "is empty; import it again"),
        ("b.json", b"[]", "is empty; import it again"),
    ):
        (tmp_path / "folder" / name).write_bytes(content)
        alone = foldlog("import", f"folder/{name}")
        assert (alone.status, why in alone.err) == (2, True), alone.err
        assert foldlog("import", "folder").status == 0, name


# -- records that cannot be read ---------------------------------------------------------------------------------------


def chat_lines(*texts):
    return [json.dumps({"role": "user", "content": text}) for text in texts]


def test_a_history_of_which_records_could_not_be_read_says_so_where_one_looks(foldlog, tmp_path):
    lines = chat_lines("a", "b", "c", "d")
    path = tmp_path / "torn.jsonl"
    path.write_text("\n".join([*lines[:3], lines[3][:12]]))
    for _ in range(2):  # importing it again says nothing twice
        assert foldlog("import", "torn.jsonl").status == 0
    mark = "1 record of its source could not be read, after event 2"
    for command in (["view"], ["log"], ["export"], ["stats"]):
        assert f"note: torn is incomplete: {mark}" in foldlog(*command, "torn").err
    assert f"({mark})" in foldlog("list").out
    document = foldlog("list", "--long", "--json").document["conversations"][0]
    assert (document["version"], document["attributes"]) == (4, {"incomplete": mark})
    path.write_text("\n".join(lines))
    told = "2 new events, 6 in all, with 1 change of attributes or documents"
    assert told in foldlog("import", "torn.jsonl").out  # the record, and that none is missing
    assert "incomplete" not in foldlog("view", "torn").err + foldlog("list").out
    assert parsed(foldlog("export", "torn").out) == list(map(json.loads, lines))


def parsed(text):
    return [json.loads(line) for line in text.splitlines()]


def test_records_missing_in_the_middle_are_counted_and_a_fork_before_them_is_whole(foldlog, tmp_path):
    (tmp_path / "hole.jsonl").write_text("\n".join([*chat_lines("a", "b"), "{torn", "{torn", *chat_lines("c")]))
    foldlog("import", "hole.jsonl")
    foldlog("fork", "hole", "before", "--at", 2)
    found = {
        row["conversation"]: row["attributes"] for row in foldlog("list", "-l", "--json").document["conversations"]
    }
    mark = "2 records of its source could not be read, the first after event 1"
    assert found == {"hole": {"incomplete": mark}, "before": {}}


@pytest.mark.parametrize("format", ["openai-chat", "claude-code", "codex"])
def test_a_log_of_which_a_record_can_be_read_again_is_the_same_log(foldlog, tmp_path, format):
    whole = corpus(format)

    def imported(text, name):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(text) + "\n")
        ran = foldlog("import", f"{name}.jsonl", "--format", format, "--conversation", name, "--json")
        (one,) = ran.document["imported"]
        return one["conversation"], one["added"], one["taken_back"]

    imported(whole[:-1], "sound")
    known = {
        name: foldlog("stats", "sound", "--json").document[name]
        for name in ("tools", "models", "spent", "first_at", "last_at")
    }
    place = len(whole) // 2
    torn = [*whole[:place], whole[place][:9], *whole[place + 1 : -1]]
    imported(torn, "c")
    assert "could not be read" in foldlog("list").out
    again = imported(whole[:-1], "c")
    assert (again[0], again[1] > again[2] > 0) == ("c", True)
    assert imported(whole[:-1], "c") == ("c", 0, 0)
    assert parsed(foldlog("export", "c").out) == parsed("\n".join(whole[:-1]))
    assert "could not be read" not in foldlog("list").out
    assert [row["conversation"] for row in foldlog("list", "--json").document["conversations"]] == ["c", "sound"]
    told = foldlog("stats", "c", "--json").document
    assert {name: told[name] for name in known} == known
    with open_histories("sqlite:///foldlog.db") as histories:
        sent, expected = (histories[name].view().to_messages() for name in ("c", "sound"))
        counted, figures = (dict(histories[name].stats().events) for name in ("c", "sound"))
    assert sent == expected
    assert {name: counted.get(name) for name in figures} == figures
    assert imported(whole, "c")[1] == imported(whole, "sound")[1] > 0
    assert parsed(foldlog("export", "c").out) == parsed("\n".join(whole))


@pytest.mark.parametrize(
    "format, torn, copies, grown, is_mended",
    [
        *((form, [9], [length], [True], True) for form, length in (("claude-code", 10), ("codex", 11), ("codex", 20))),
        ("codex", [9], [9], [False], False),
        ("claude-code", [9], [15, 9, 20, 15], [True, False, False, False], True),
        ("codex", [9, 14], [10, 12, 14, 16], [False, False, False, True], True),
        ("claude-code", [9, 10], [10, 11], [False, True], True),
    ],
)
def test_an_older_copy_of_a_log_mends_all_that_could_not_be_read_or_adds_nothing(
    foldlog, log, format, torn, copies, grown, is_mended
):
    whole = corpus(format)

    def imported(text, *torn):
        one = log(format, text, *torn)
        return one["conversation"], one["added"] > 0, one["older"]

    name, *_ = imported(whole, *torn)
    for length, grows in zip(copies, grown, strict=True):
        assert imported(whole[:length]) == (name, grows, not grows and length < len(whole))
    (row,) = foldlog("list", "--json", "--long").document["conversations"]
    assert ("incomplete" in row["attributes"]) is not is_mended
    if is_mended:
        assert parsed(foldlog("export", name).out) == parsed("\n".join(whole))
    edited = imported([*whole[:12], whole[0], whole[1]])
    assert edited == (edited[0], True, False)
    assert edited[0].startswith(f"{name}@")


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_a_damaged_record_of_an_edited_log_is_not_mended_with_one_of_the_log_before_it(foldlog, log, format):
    whole = corpus(format)
    edited = [*whole[:10], *whole[12:18]]

    def imported(text, *torn):
        return log(format, text, *torn)["conversation"]

    assert imported(whole, 10) == imported(whole)
    fork = imported(edited[:12])
    assert imported(edited, 13) == fork
    assert parsed(foldlog("export", fork).out) == parsed("\n".join(edited[:13] + edited[14:]))
    assert imported(edited) == fork
    assert parsed(foldlog("export", fork).out) == parsed("\n".join(edited))


@pytest.mark.parametrize("format, is_torn_first", [("claude-code", True), ("codex", False)])
@pytest.mark.parametrize("torn, border", [(10, 10), (9, 10), (9, 9)])
def test_a_log_that_is_damaged_where_it_was_edited_has_one_fork(foldlog, log, format, is_torn_first, torn, border):
    whole = corpus(format)
    edited = [*whole[:border], *whole[12:18]]

    def imported(text, *torn):
        return log(format, text, *torn)["conversation"]

    imported(whole)
    fork = imported(edited, *[torn] * is_torn_first)
    for places in ([torn], [], [], [torn]):
        assert imported(edited, *places) == fork
    assert parsed(foldlog("export", fork).out) == parsed("\n".join(edited))
    assert imported([*edited, *whole[18:]]) == fork


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_a_log_that_was_edited_elsewhere_than_where_its_records_were_damaged_is_another(foldlog, log, format):
    whole = corpus(format, 18)
    edited = [*whole[:8], whole[16], *whole[8:16]]

    def imported(text, *torn):
        return log(format, text, *torn)["conversation"]

    name = imported(whole[:16], 4, 12)
    fork = imported(edited)
    assert imported(whole) == name != fork
    assert imported(edited) == fork
    for conversation, text in ((name, whole), (fork, edited)):
        assert parsed(foldlog("export", conversation).out) == parsed("\n".join(text))


@pytest.mark.parametrize("format", ["claude-code", "codex", "openai-chat"])
def test_a_log_of_which_other_records_are_damaged_each_time_is_one_conversation(histories, tmp_path, format):
    whole = corpus(format, 14)
    whole = chat_lines(*"abcd", *["ok"] * 10) if format == "openai-chat" else whole  # equal ones in a row
    for torn, length in (((2, 7), 12), ((6,), 12), ((), 12), ((), 13), ((), 14)):
        text = [line[:9] if place in torn else line for place, line in enumerate(whole[:length])]
        (tmp_path / "c.jsonl").write_text("\n".join(text) + "\n")
        (one,) = histories.import_(tmp_path / "c.jsonl", format=format, findings=str)
    assert [*histories] == [one.id]
    assert [json.dumps(each) for each in one.export()] == [json.dumps(json.loads(line)) for line in whole]


def test_an_edited_log_leaves_the_forks_of_its_user_alone_and_the_erased_ones(foldlog, tmp_path):
    texts = [str(number) for number in range(9)]
    for at in (8, 6):
        lines(tmp_path / "a.jsonl", chat(*texts))
        foldlog("import", "a.jsonl", "--json")
        lines(tmp_path / "a.jsonl", chat(*texts[:at], "edited", "since"))
        (one,) = foldlog("import", "a.jsonl", "--json").document["imported"]
        assert (one["conversation"], one["added"]) == (f"a@{at}", 2)
        foldlog("erase", "a@8", "--reason", "asked to", "--yes")
        foldlog("fork", "a", "a@3", "--at", 3)
    rows = foldlog("list", "--json").document["conversations"]
    assert {row["conversation"]: row["version"] for row in rows} == {"a": 9, "a@3": 3, "a@6": 8, "a@8": 10}


def test_an_edited_log_is_forked_before_the_record_that_was_edited(histories, tmp_path):
    def said(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    for edited in ("of the kite: red", "of the kite: tan"):  # of one length: what the first event of the record holds
        compacted = {"message": "", "replacement_history": [said("user", "b"), said("user", edited)]}
        given = [*(said("user", text) for text in "abc"), compacted]
        lines(
            tmp_path / "a.jsonl",
            [{"type": "compacted" if "message" in each else "response_item", "payload": each} for each in given],
        )
        (one,) = histories.import_(tmp_path / "a.jsonl", format="codex")
    inside = histories["a"].fork(4)  # its own event is of a record that it shares
    assert histories.import_(tmp_path / "a.jsonl", format="codex", conversation=inside.id)[0].version() == 6
    for each in (one, inside):
        each.redact(4, reason="asked for")
        assert (one.id, edited in str([*each.export()]), each.version()) == ("a@3", False, 7 + (each is one))


def test_an_edited_log_is_no_fork_where_another_fork_of_it_is_redacted(foldlog, tmp_path):
    texts = [f"<{number}>" for number in range(9)]
    edits = texts[:6] + texts[7:], texts[:4] + texts[5:], texts[:5] + texts[6:]
    for place, edited in enumerate((texts, *edits)):
        lines(tmp_path / "a.jsonl", chat(*edited))
        ran = foldlog("import", "a.jsonl", "--json")
        if place == 2:
            lines(tmp_path / "a.jsonl", chat(*edits[0]))
            foldlog("redact", "a@6", 7, "--reason", "asked to", "--yes")
            assert "<8>" not in foldlog("export", "a@6").out
    assert (ran.status, "a@5" in ids(foldlog)) == (1, False)
    lines(tmp_path / "a.jsonl", chat(*edits[1][:7], "since"))
    ran = foldlog("import", "a.jsonl", "--json")
    assert (ran.status, ids(foldlog)) == (1, ["a", "a@4", "a@6"])


@pytest.mark.parametrize("format", ["codex", "pi", "gemini-cli"])
def test_what_is_redacted_does_not_come_back_where_the_name_of_the_log_is_damaged(histories, tmp_path, format):
    whole = records_of(format)
    lines(tmp_path / "c.jsonl", whole)
    (history,) = histories.import_(tmp_path / "c.jsonl", findings=str)
    said = [event for event in history.events() if isinstance(event, Message) and event.timestamp][-1]
    history.redact(said, reason="asked to")
    (tmp_path / "c.jsonl").write_text("\n".join(["{torn", *map(json.dumps, whole[1:])]) + "\n")
    with pytest.raises(HistoryDiverged, match="events of it were redacted"):
        histories.import_(tmp_path / "c.jsonl", findings=str)
    lines(tmp_path / "c.jsonl", whole)
    assert [each.id for each in histories.import_(tmp_path / "c.jsonl", findings=str)] == [history.id] == [*histories]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("begun", ["{", '{"edited": true, '], ids=["damaged", "edited"])
def test_what_is_redacted_does_not_come_back_where_a_record_is_damaged_or_edited_and_the_name_is_another(
    histories, tmp_path, format, begun
):
    whole = (CORPUS / f"{format}.jsonl").read_text().splitlines()
    log = tmp_path / "kite.jsonl"
    log.write_text("\n".join(whole) + "\n")
    (history,) = histories.import_(log, format=format, findings=str)
    history.redact(next(each for each in history.events() if each.shown and each.id), reason="asked to")
    places = range(1, len(whole)) if begun == "{" else some(range(3, len(whole)), 4)  # a later record is edited
    for torn in places:
        line = begun if begun == "{" else f"{begun}{whole[torn][1:]}"
        log.write_text("\n".join([*whole[:torn], line, *whole[torn + 1 :]]) + "\n")
        with suppress(HistoryDiverged):
            histories.import_(log, format=format, prefix="again/", findings=str)
    assert [*histories] == [history.id]


@pytest.mark.parametrize(
    "command, name", [(["retract", "l", "--to", 2], "l@4"), (["condense", "l", "--agent-model", "gpt-4o"], "l")]
)
def test_a_log_grows_after_a_declined_condensation_and_in_a_fork_after_a_retraction(foldlog, tmp_path, command, name):
    texts = [f"m{number}" for number in range(8)]
    lines(tmp_path / "l.jsonl", chat(*texts[:4]))
    foldlog("import", "l.jsonl")
    foldlog(*command)
    for more, added in ((6, 2), (6, 0), (8, 2)):
        lines(tmp_path / "l.jsonl", chat(*texts[:more]))
        ran = foldlog("import", "l.jsonl", "--json")
        (one,) = ran.document["imported"]
        assert (ran.status, one["conversation"], one["added"]) == (0, name, added)
        assert ("and its conversation went different ways" in (one["note"] or "")) == (name == "l@4")
        assert parsed(foldlog("export", name).out) == chat(*texts[:more])
    assert ids(foldlog) == sorted({"l", name})


def test_no_conversation_is_there_without_the_mark_of_what_it_lacks(histories, tmp_path, monkeypatch):
    """A process may end right after the import."""
    torn = [*chat_lines("a", "b"), "{torn", *chat_lines("c", "d"), "{torn"]
    (tmp_path / "c.jsonl").write_text("\n".join(torn))
    monkeypatch.setattr(Documents, "append", lambda *_, **__: pytest.fail("another transaction"))
    histories.import_(tmp_path / "c.jsonl", findings=str)
    assert histories["c"].fork(3).document("unread records") == [[2, 2]]
    assert histories["c"].document("unread records") == [[2, 2], [4, 4]]
    assert "2 records" in (lacks := histories["c"].attributes()["incomplete"])
    for view in (False, True):
        notes: list[str] = []
        assert [*histories["c"].export(view=view, notes=notes.append)]
        assert [note.partition(";")[0] for note in notes] == [f"incomplete: {lacks}"]


@pytest.mark.parametrize("at, unread", [(2, []), (3, [2]), (4, [2, 3]), (5, [2, 3]), (6, [2, 3, 5]), (None, [2, 3, 5])])
def test_a_fork_that_lacks_records_says_so_wherever_it_begins(histories, tmp_path, at, unread):
    torn = [*chat_lines("a", "b"), "{torn", *chat_lines("c"), "{torn", *chat_lines("d", "e"), "{torn", *chat_lines("f")]
    (tmp_path / "c.jsonl").write_text("\n".join(torn))
    histories.import_(tmp_path / "c.jsonl", findings=str)
    said = {1: "1 record of its source could not be read, after event 1"}
    said |= {n: f"{n} records of its source could not be read, the first after event 1" for n in (2, 3)}
    for redacted in (None, 0):
        if redacted is not None:
            histories["c"].redact(redacted, reason="asked to")
        fork = histories["c"].fork(at, f"fork {redacted}")
        assert [place for place, _ in fork.document("unread records", [])] == unread
        assert fork.attributes().get("incomplete") == said.get(len(unread))
        is_marked_here = bool(unread) and at is not None
        assert fork.version() - (histories.store.conversation(fork.id).parent_version or 0) == is_marked_here


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_a_log_of_which_very_many_records_could_not_be_read_can_be_mended(histories, tmp_path, count):
    whole = chat_lines("a", *map(str, range(count)), "b")

    def imported(text):
        (tmp_path / "c.jsonl").write_text("\n".join(text))
        return [each.id for each in histories.import_(tmp_path / "c.jsonl", findings=str)]

    assert imported([whole[0], *["{torn"] * count, whole[-1]]) == ["c"]
    assert histories["c"].document("unread records") == [[1, 1]] * 1_000 + [[-1, 1]] * (count > 1_000)
    assert ("at least" in histories["c"].attributes()["incomplete"]) == (count > 1_000)
    assert imported(whole) == ["c"]
    assert (histories["c"].document("unread records"), len(list(histories["c"].export()))) == (None, count + 2)


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_an_edited_log_shares_also_what_was_written_again_when_a_record_could_be_read(foldlog, log, format):
    whole = corpus(format)
    edited = [*whole[:17], whole[3]]

    def imported(text, *torn):
        return log(format, text, *torn)["conversation"], foldlog("stats", "--json").document["events"]["total"]

    torn, _ = imported(whole, 4)
    name, total = imported(whole)
    assert name == torn
    for _ in range(2):
        fork, of_both = imported(edited)
        assert fork.startswith(f"{name}@")
        assert total < of_both < total + 5
    assert parsed(foldlog("export", fork).out) == parsed("\n".join(edited))
    assert parsed(foldlog("export", name).out) == parsed("\n".join(whole))
    assert imported([*edited, whole[5]])[0] == fork


@pytest.mark.parametrize("format", ["openai-chat", "copilot-cli"])  # the program writes the second one again
def test_a_history_is_incomplete_only_while_it_lacks_records(histories, tmp_path, format):
    is_again = format == "copilot-cli"
    said = {"type": "user.message", "id": "u{}", "timestamp": "2026-01-01T00:00:09Z", "data": {"content": "say {}"}}
    line = json.dumps(said) if is_again else chat_lines("say {}")[0]
    whole = [
        *(CORPUS / f"{format}.jsonl").read_text().splitlines()[:is_again],
        *(line.replace("{}", n) for n in "abcdef"),
    ]
    older = [] if is_again else [whole[:2]]  # of the other one, an import takes back what is gone

    def torn(*places):
        return ["{torn" if place - len(whole) in places else line for place, line in enumerate(whole)]

    def imported(text, name="c"):
        (tmp_path / "c.jsonl").write_text("\n".join(text) + "\n")
        histories.import_(tmp_path / "c.jsonl", conversation=name, format=format, findings=str)
        return histories[name].version(), histories[name].attributes().get("incomplete")

    version, _ = imported(whole)
    for text in (torn(-1), torn(-2)[:-1], torn(-3), torn(-4, -2)[:-1], *older):
        assert imported(text) == (version, None)
    mark = f"1 record of its source could not be read, after event {version - 1}"
    assert imported([*whole, "{torn"]) == (version + 1, mark)

    marked = imported(torn(-2, -4), "holes")
    assert "2 records" in marked[1]
    for text in (torn(-2, -4), *older):
        assert imported(text, "holes") == marked
    assert "2 records" in imported(torn(-2, -3, -4), "holes")[1]  # the third one is stored


@pytest.mark.parametrize("format", ["claude-code", "codex", "openai-chat"])
def test_watching_marks_a_history_that_lacks_records_as_an_import_does(foldlog, tmp_path, monkeypatch, format):
    whole = chat_lines(*"abcdefgh") if format == "openai-chat" else corpus(format)[:12]
    torn = [*whole[:4], "{torn", *whole[5:]]
    states = [torn[:-2], [*torn[:-2], whole[-2][:9]], torn, whole]  # it grows, by a part of a line first; and is whole
    marks = []

    def states_of_it(seconds=0.0):
        if seconds:
            assert foldlog(*command, "--db", "plain.db").status == 0
            watched, plain = (foldlog("list", "-l", "--json", "--db", f"{db}.db") for db in ("foldlog", "plain"))
            (attributes,) = [each["attributes"] for each in watched.document["conversations"]]
            assert [attributes] == [each["attributes"] for each in plain.document["conversations"]]
            marks.append(attributes.get("incomplete", "")[:9])
        if not states:
            raise KeyboardInterrupt
        (tmp_path / "c.jsonl").write_text("\n".join(states.pop(0)) + "\n")

    command = "import", "c.jsonl", "--format", format, "--conversation", "c"
    states_of_it()
    monkeypatch.setattr(import_, "time", SimpleNamespace(sleep=states_of_it))
    assert foldlog(*command, "--watch").status == 0
    assert marks == ["1 record ", "2 records", "1 record ", ""]


def test_two_imports_of_a_history_at_the_same_time_are_as_one(tmp_path):
    lines(tmp_path / "a.jsonl", chat("hi", "hello", "bye"))
    (source,), (other,) = open_sources([tmp_path / "a.jsonl"]), open_sources([tmp_path / "a.jsonl"])

    def while_another_is_first(events):
        yield from events
        with open_store(url) as elsewhere:
            import_source(elsewhere, other)

    with open_store(url := f"sqlite:///{tmp_path}/a.db") as store:
        imported = import_source(store, source, watch=while_another_is_first)
        assert (imported.conversation, imported.added, imported.version) == ("a", 0, 3)


def test_an_import_goes_on_after_attributes_were_set(foldlog, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(chat_lines("a", "b")))
    foldlog("import", "c.jsonl")
    foldlog("attributes", "c", "--set", "incomplete=tides")  # of the user
    path.write_text("\n".join(chat_lines("a", "b", "c")))
    assert "1 new event" in foldlog("import", "c.jsonl").out
    assert [row["attributes"] for row in foldlog("list", "-l", "--json").document["conversations"]] == [
        {"incomplete": "tides"}
    ]
