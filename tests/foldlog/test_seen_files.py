"""Files that are unchanged since they were imported are not opened again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import foldlog
from foldlog import _seen_files
from foldlog._cli.histories import import_
from foldlog._web.conversations import ServedConversations
from foldlog.eventstore import open_store


def write(folder: Path, name: str, *texts: str, session: str | None = None) -> Path:
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [
        {
            "type": "user",
            "message": {"role": "user", "content": text},
            "uuid": f"{name}-{number}",
            "parentUuid": f"{name}-{number - 1}" if number else None,
            "sessionId": session or name,
            "timestamp": f"2026-03-01T10:00:{number:02}.000Z",
            "version": "2.0.14",
        }
        for number, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        write(tmp_path / "projects", name, "hello", f"the words of {name}")
    return tmp_path / "projects"


@pytest.fixture
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files below the folder that were opened, in order, each time once."""
    names: list[str] = []
    really = Path.open

    def noted(path: Path, *more, **options):
        if path.is_relative_to(folder) and path.name not in names:
            names.append(path.name)
        return really(path, *more, **options)

    monkeypatch.setattr(Path, "open", noted)
    return names


def test_what_is_unchanged_is_not_opened_again_unless_it_is_checked_or_imported_otherwise(
    foldlog, folder: Path, opened: list[str]
):
    assert foldlog("import", folder).status == 0
    assert opened == ["a.jsonl", "b.jsonl", "c.jsonl"]
    opened.clear()
    again = foldlog("import", folder)
    assert (again.status, opened) == (0, [])
    assert again.out.splitlines()[0] == "a (claude-code): nothing new, 2 events as before"
    document = foldlog("import", folder, "--json").document
    assert [(one["conversation"], one["version"], one["format"]) for one in document["imported"]] == [
        (name, 2, "claude-code") for name in "abc"
    ]
    for options in (["--check"], ["--prefix", "x-"]):
        opened.clear()
        assert foldlog("import", folder, *options).status == 0
        assert opened == ["a.jsonl", "b.jsonl", "c.jsonl"]


def more(path: Path, **fields: object) -> None:
    """Let a session go on with a line, which has these fields."""
    last = json.loads(path.read_text().splitlines()[-1])
    line = {**last, "uuid": f"{last['uuid']}+", "parentUuid": last["uuid"], **fields}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def replaced(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


LOST = {"message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]}}
SUMMARY = {"isCompactSummary": True, "message": {"role": "user", "content": "all before"}}
SIDE, FIRST = '"isSidechain": true, "version"', '"version": "2.0.14", "message": {"role": "user", "content": "hello"'
GROWN = {  # what it is; what happens; whether it is read on from there (None: that is not tried); what is told
    "it goes on": ("", lambda log, _: more(log), True, "1 new event, 3 in all"),
    "with a line that is not shown": ("", lambda log, _: more(log, type="system", message=None), True, "1 new event"),
    "with a broken line": ("", lambda log, _: copied(log, "{broken"), False, "nothing new, 2 events"),
    "with a result of a lost call": ("", lambda log, _: more(log, **LOST), False, "1 new event, 3 in all"),
    "with a compaction": ("", lambda log, _: more(log, **SUMMARY), False, "1 new event, 3 in all"),
    "after a line of a sub-agent": (FIRST, lambda log, _: more(log), True, "1 new event, 3 in all"),
    "as a sub-agent": ('"version"', lambda log, _: more(log), False, "1 new event, 3 in all"),
    "edited": ("", lambda log, _: (replaced(log, "hello", "howdy"), more(log)), None, "not imported"),
    "after others wrote": ("", lambda log, run: (run("retract", "b", "--to", 1), more(log)), None, "not imported"),
    "redacted": ("", lambda log, run: (run("redact", "b", 1, *ASKED), more(log)), None, "1 new event, 4 in all"),
    "erased": ("", lambda log, run: (run("erase", "b", *ASKED), more(log)), None, "not imported"),
}
ASKED = ("--reason", "asked to", "--yes")


def copied(log: Path, line: str = "") -> None:
    log.write_text(f"{log.read_text()}{line or log.read_text().splitlines()[-1]}\n")


def called(log: Path, run, *more_calls: str) -> None:
    use = {"type": "tool_use", "id": "t", "name": "ls"}
    more(log, type="assistant", message={"role": "assistant", "id": "m", "content": [use]})
    run("import", log.parent)
    for each in more_calls:
        message = {"role": "assistant", "id": "m", "content": [{**use, "id": each}]}
        more(log, uuid=each, parentUuid="b-1+", message=message)
    if not more_calls:
        copied(log)
        more(log, type="user", **LOST)


def cut_and_grown(log: Path, run) -> None:
    before = log.read_text()
    more(log)
    run("import", log.parent)
    log.write_text(before)
    run("import", log.parent)
    more(log)


def without_an_end(log: Path, run) -> None:
    before = log.read_text()
    log.write_text(before.rstrip())
    run("import", log.parent)
    log.write_text(before)
    more(log)


GROWN["with a copy of a call, and its result"] = ("", called, True, "2 new events, 5 in all")
GROWN["between the calls of a reply"] = ("", lambda log, run: called(log, run, *"uv"), True, "2 new events, 5 in all")
GROWN["after a line without an end"] = ("", without_an_end, None, "1 new event, 3 in all")
GROWN["cut, and with the same line"] = ("", cut_and_grown, True, "nothing new, 3 events as before")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each try to read a log on, not from its beginning, went well."""
    tried: list[bool] = []
    really = _seen_files.read_on

    def noted(*of):
        events = really(*of)
        tried.append(events is not None)
        return events

    monkeypatch.setattr(_seen_files, "read_on", noted)
    return tried


@pytest.mark.parametrize("case", GROWN)
def test_a_log_that_has_grown_is_read_on_where_that_gives_what_reading_all_of_it_gives(
    foldlog, folder: Path, tried: list[bool], case: str
):
    side, happens, is_read_on, told = GROWN[case]
    log = folder / "b.jsonl"
    replaced(log, side or "no such text", side.replace('"version"', SIDE))
    foldlog("import", folder)
    happens(log, foldlog)
    ran = foldlog("import", folder)
    assert told in ran.out, ran
    assert {*tried} == ({is_read_on} - {None})
    assert ("b.jsonl:3" in ran.err) == (case == "with a broken line")
    if "not" in told:
        return
    assert "added" in foldlog("import", log, "--db", "anew.db").out
    assert foldlog("import", folder, "--check").status == 0
    if case not in ("redacted", "as a sub-agent"):  # whose name is that of its file
        anew, grown = (foldlog("log", "b", "--json", "--db", db).document for db in ("anew.db", "foldlog.db"))
        for each in (*anew["events"], *grown["events"]):
            each.pop("recorded_at", None)
        assert anew["events"] == grown["events"]


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_a_log_of_which_a_damaged_record_was_read_later_is_read_on(tmp_path: Path, tried: list[bool], format: str):
    corpus = Path(__file__).parents[1] / "fuzz" / "corpus" / f"{format}.jsonl"
    whole = [line for line in corpus.read_text().splitlines() if line.strip() and '"problem"' not in line]
    log = tmp_path / "b.jsonl"
    with foldlog.open("memory:") as seen, foldlog.open("memory:") as unseen:

        def imported(lines: list[str]) -> None:
            log.write_text("".join(f"{line}\n" for line in lines))
            seen.import_(log, format=format, conversation="c", findings=str)
            unseen.import_(log, format=format, conversation="c", findings=str, prefix=str(len(lines)))  # reads all

        begun = len(whole) // 2
        imported([*whole[:5], whole[5][:9], *whole[6:begun]])
        for end in range(begun, len(whole) + 1):
            imported(whole[:end])
            events, others = (list(each["c"].events()) for each in (seen, unseen))
            assert [replace(one, timestamp=None) for one in events] == [replace(one, timestamp=None) for one in others]
        assert sum(tried) > len(whole) // 4
        assert [json.dumps(each) for each in seen["c"].export()] == [json.dumps(json.loads(line)) for line in whole]


def test_a_file_that_is_written_anew_with_its_size_and_time_is_read(foldlog, folder: Path, opened: list[str]):
    foldlog("import", folder)
    before = (folder / "b.jsonl").stat()
    new = write(folder, "new", "hello", "the words of d", session="b")
    new.write_text(new.read_text().replace("new-", "b-"))
    new.replace(folder / "b.jsonl")
    os.utime(folder / "b.jsonl", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (folder / "b.jsonl").stat().st_size == before.st_size
    opened.clear()
    diverged = foldlog("import", folder)
    assert (diverged.status, opened) == (1, ["b.jsonl"])


def test_a_file_with_a_finding_is_read_again_and_named_again(foldlog, folder: Path, opened: list[str]):
    copied(folder / "b.jsonl", "{broken")
    assert "b.jsonl:3" in foldlog("import", folder).err
    opened.clear()
    again = foldlog("import", folder)
    assert (again.status, opened) == (0, ["b.jsonl"])
    assert "b.jsonl:3" in again.err


def test_what_an_interrupted_import_has_read_is_not_read_again(
    foldlog, folder: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupted(store, source, *more, really=import_.import_source, **how):
        if source.name == "c":
            raise KeyboardInterrupt
        return really(store, source, *more, **how)

    with monkeypatch.context() as patched:
        patched.setattr(import_, "import_source", interrupted)
        foldlog("import", folder)
    opened.clear()
    assert foldlog("import", folder).status == 0
    assert opened == ["b.jsonl", "c.jsonl"]  # that b has no more histories was not known


def test_a_file_of_several_histories_is_unchanged_as_a_whole(foldlog, tmp_path: Path, folder: Path, opened: list[str]):
    for each in folder.iterdir():
        each.unlink()
    lines = [
        json.dumps({"id": name, "messages": [{"role": "user", "content": text} for text in ("hi", name)]})
        for name in ("one", "two")
    ]
    (folder / "both.jsonl").write_text("\n".join(lines))
    assert foldlog("import", folder).status == 0
    opened.clear()
    assert foldlog("import", folder).status == 0
    assert opened == []
    assert foldlog("erase", "two", "--reason", "asked to", "--yes").status == 0
    foldlog("import", folder)
    assert opened == ["both.jsonl"]


def test_a_file_is_read_whose_conversation_another_file_of_the_import_changed(foldlog, folder: Path, opened: list[str]):
    (folder / "b.jsonl").write_text((folder / "a.jsonl").read_text())
    assert foldlog("import", folder).status == 0
    write(folder, "a", "hello", "the words of a", "more")
    opened.clear()
    assert foldlog("import", folder).status == 0
    assert opened == ["a.jsonl", "b.jsonl"]


def test_an_import_of_one_file_reads_as_many_rows_whatever_the_store_holds(tmp_path: Path, rows_read: list[int]):
    counts = []
    for size in (3, 30):
        with foldlog.open(tmp_path / f"{size}.db") as histories:
            for number in range(size):
                write(tmp_path / str(size), f"{number:02}", "hello", f"number {number}")
            histories.import_(tmp_path / str(size))
            histories["00"].redact(1, reason="asked to")
            for texts in (["one"], ["one"], ["one", "two"]):
                path = write(tmp_path / "other", "x", *texts)
                rows_read.clear()
                histories.import_(path)
                counts.append(sum(rows_read))
    assert counts[:3] == counts[3:]


def test_histories_of_unchanged_files_are_returned(tmp_path: Path, folder: Path, opened: list[str]):
    with foldlog.open(tmp_path / "history.db") as histories:
        first = [history.id for history in histories.import_(folder)]
        opened.clear()
        assert [history.id for history in histories.import_(folder)] == first == ["a", "b", "c"]
    assert opened == []


def test_the_places_of_an_agent_are_known(foldlog, folder: Path, monkeypatch: pytest.MonkeyPatch):
    home = folder.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    nowhere = foldlog("import", "--from", "claude-code")
    assert (nowhere.status, "no histories of claude-code at" in nowhere.err) == (2, True)
    assert "--format claude-code" in foldlog("import", str(folder), "--from", "claude-code").err
    write(home / ".claude", "projects/p/d", "hello", "the words of d", session="d")
    assert "d (claude-code): 2 events\n" in foldlog("import", "--from", "claude-code").out
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder.parent))
    there = foldlog("import", "--from", "claude-code").out.splitlines()
    assert [line.partition(" ")[0] for line in there[:-1]] == ["a", "b", "c"]


def test_watching_imports_what_grows_and_what_is_new_and_the_page_beside_it_shows_it(
    foldlog, folder: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
):
    served: list[ServedConversations] = []
    shown: list[dict[str, int]] = []

    def something_happens(seconds: float) -> None:
        served[:] = served or [ServedConversations(open_store("sqlite:///foldlog.db?mode=ro"))]
        shown.append({each.conversation: each.version for each in served[0].list().conversations})
        if not (folder / "d.jsonl").exists():
            opened.clear()
            write(folder, "b", "hello", "the words of b", "more")
            write(folder, "d", "hello", "new")
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(import_, "time", SimpleNamespace(sleep=something_happens))
    watched = foldlog("import", folder, "--watch")
    assert watched.status == 0
    assert watched.out.splitlines()[3:] == [
        "6 events of 3 conversations added to foldlog.db.",
        "b (claude-code): 1 new event, 3 in all",
        "d (claude-code): 2 events",
    ]
    assert opened == ["b.jsonl", "d.jsonl"]
    served[0].close()
    assert shown == [{"a": 2, "b": 2, "c": 2}, {"a": 2, "b": 3, "c": 2, "d": 2}]


def test_watching_an_empty_folder_waits_for_its_first_history(foldlog, folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "new").mkdir()
    sleeps: list[float] = []

    def something_happens(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 1:
            (folder / "new" / "e.jsonl").write_text("{")
        elif len(sleeps) == 2:
            write(folder / "new", "e", "hello")
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(import_, "time", SimpleNamespace(sleep=something_happens))
    watched = foldlog("import", folder / "new", "--watch")
    assert (watched.status, watched.err.count("waiting for one")) == (0, 2)
    assert watched.out.splitlines()[-1] == "1 event of 1 conversation added to foldlog.db."
    assert foldlog("import", folder / "nowhere", "--watch").status == 2


def test_an_import_without_a_place_or_files_says_what_to_give(foldlog, folder: Path):
    assert "claude-code, codex" in foldlog("import", "--from", "clod").err
    assert "claude-code, codex" in foldlog("import").err
    assert "--watch follows files" in foldlog("import", folder, "--watch", "--json").err


def test_a_log_of_which_only_the_title_was_there_is_the_same_conversation_when_it_grows(foldlog, folder: Path):
    path = write(folder, "-w/5f9e6a70", "hello", "more", session="5f9e6a70")
    lines = ['{"type": "summary", "summary": "Hello", "leafUuid": "x"}\n', *path.read_text().splitlines(keepends=True)]
    for count in (1, 2, 3):
        path.write_text("".join(lines[:count]))
        assert foldlog("import", "projects").status == 0
        rows = foldlog("list", "--json").document["conversations"]
        (row,) = (row for row in rows if row["conversation"].endswith("5f9e6a70"))
        assert row["version"] == count
