"""A history goes on in another program: the session that is written, and the fork that it grows."""

import errno
import json
import os
import stat
import subprocess
from datetime import UTC, datetime

import pytest

from foldlog import (
    Action,
    CondensationAction,
    CondensationSummary,
    KeyRing,
    Message,
    Observation,
    SystemMessage,
    open as open_histories,
)
from foldlog._imports.importing import Failed, Import
from foldlog._imports.making_events import make_events
from foldlog._imports.session_forks import begin_continuation
from foldlog.errors import (
    InvalidArgument,
    NoCondensationAvailable,
    NoSuchVersion,
    StoreUnavailable,
)
from foldlog.formats.event_fields import HANDED_OVER
from foldlog.formats.native_sessions.claude_code import folder_of
from foldlog.formats.native_sessions.going_over import SUMMARY
from foldlog.projections.messages.growing import BEGINNING
from tests.foldlog.records import GOLDEN, read_lines

PROGRAMS = ("claude-code", "codex")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASK = [
    SystemMessage(content="You are Harbour, an agent."),
    Message(content="Zähl die Leuchttürme ☃", source="user", timestamp=NOON),
    Action(tool="look", arguments={"at": "north"}, call_id="k1", response_id="r1", thought="first"),
    Action(tool="look", arguments={"at": "south"}, call_id="k2", response_id="r1"),
    Observation(content="four towers", tool="look", call_id="k1"),
    Observation(content="fog bank", tool="look", call_id="k2", is_error=True),
    Message(content="Four in the north.", source="agent"),
]


@pytest.fixture
def histories(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.chdir(tmp_path)
    with open_histories(tmp_path / "store.db") as histories:
        yield histories


@pytest.fixture
def task(histories):
    history = histories["task"]
    history.append(TASK)
    return history


def records_in(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def sent_by(history):
    """Return the messages of a View, each as a JSON text."""
    messages = history.view().to_messages("openai")
    return [json.dumps(message, ensure_ascii=False) for message in messages]


def check_sent(history, once, never=()):
    """Check that the words are in the messages of a View: ``once`` each, or ``never``."""
    sent = "".join(sent_by(history))
    expected = dict.fromkeys(once, 1) | dict.fromkeys(never, 0)
    assert {words: sent.count(words) for words in expected} == expected


def findings_in(histories):
    """Return the findings of a verification of all histories."""
    return [finding for verdict in histories.maintenance.verify() for finding in verdict.findings]


USAGE = {"input_tokens": 70, "output_tokens": 7}
"""The usage of each reply of a ``Program``."""


class Program:
    """Appends to a session as Claude Code or Codex does. Programs that write copies of one session
    need ``ids`` of their own for their records.
    """

    def __init__(self, made, ids="new"):
        self.path = made.path
        self.ids = ids
        self.records = records_in(made.path)
        self.is_codex = "payload" in self.records[0]
        self.last = self.records[-1].get("uuid")
        self.turns = 0

    def write(self, *records):
        with self.path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def line(self, kind, content, **fields):
        """Return the next line of Claude Code."""
        self.turns += 1
        uuid = f"{self.ids}-{self.turns}"
        message = {"role": kind, "content": [{"type": "text", "text": content}]}
        if kind == "assistant":
            message |= {"id": f"msg-{uuid}", "model": "m", "usage": USAGE}
        line = {
            "type": kind,
            "uuid": uuid,
            "parentUuid": self.last,
            "sessionId": self.path.stem,
            "timestamp": f"2026-03-02T09:00:{self.turns:02}.000Z",
            "message": message,
            **fields,
        }
        self.last = uuid
        return line

    def item(self, kind, payload):
        """Return a line of Codex."""
        return {"timestamp": "2026-03-02T09:00:00.000Z", "type": kind, "payload": payload}

    def say(self, asked, answered):
        """Write a turn: the text of the user, and the answer of the model."""
        if not self.is_codex:
            self.write(self.line("user", asked), self.line("assistant", answered))
            return
        self.turns += 1
        usage = {**USAGE, "total_tokens": sum(USAGE.values())}
        total = {name: count * self.turns for name, count in usage.items()}
        info = {"total_token_usage": total, "last_token_usage": usage}
        self.write(
            self.item("response_item", self.message("user", asked)),
            self.item("response_item", self.message("assistant", answered)),
            self.item("event_msg", {"type": "token_count", "info": info}),
        )

    def message(self, role, text):
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    def compact(self, summary):
        """Write a compaction, after which the program shows only the summary."""
        if self.is_codex:
            history = [self.message("user", summary)]
            payload = {"message": summary, "replacement_history": history}
            self.write(self.item("compacted", payload))
            return
        boundary = {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "boundary",
            "parentUuid": None,
            "logicalParentUuid": self.last,
            "sessionId": self.path.stem,
        }
        self.last = "boundary"
        self.write(boundary, self.line("user", summary, isCompactSummary=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_session_contains_the_view(task, program):
    made = task.continue_in(program)
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o600
    assert made.left_out == {"system prompt": 1}
    assert made.session in made.path.name
    resume = "claude --resume" if program == "claude-code" else "codex resume"
    assert made.command == f"{resume} {made.session}"
    text = made.path.read_text("ascii")
    assert len(text.splitlines()) == made.records
    said = json.dumps(records_in(made.path), ensure_ascii=False)
    words = ("☃", "first", "north", "south", "four towers", "fog bank", "Four in the")
    places = [said.index(word) for word in words]
    assert places == sorted(places)
    assert "You are Harbour" not in said
    assert "2026-03-01T12:00:00.000Z" in said
    assert "tools of the former program (look)" in said


@pytest.mark.parametrize("program", PROGRAMS)
def test_fork_shows_what_the_program_was_given(histories, task, program):
    made = task.continue_in(program)
    fork = histories[made.session]
    assert fork.view().system_prompt == ""
    note = fork.view()[-1]
    assert note.meta[HANDED_OVER] == {
        "conversation": "task",
        "version": 7,
        "format": program,
        "file": str(made.path),
        "records": made.records,
        "programs": [""],
    }
    assert fork.attributes()["program"] == program
    assert task.version() == 7
    assert histories.import_(made.path)[0].version() == fork.version()


@pytest.mark.parametrize("note", [{}, {"format": 5}, {"format": "codex", "programs": [{}]}])
def test_a_note_that_foldlog_did_not_write_ends_no_hand_over(task, note):
    task.append(Message(content="Go on.", source="user", meta={HANDED_OVER: note}))
    made = task.continue_in("claude-code")
    assert "this conversation ran in" in made.path.read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_grown_session_is_the_fork(histories, task, program):
    made = task.continue_in(program)
    session = Program(made)
    fork = histories[made.session]
    before = sent_by(fork)
    begin = fork.version()
    for turn in range(2):
        session.say(f"asked {turn}", f"answered {turn}")
        (grown,) = histories.import_(made.path)
        assert grown.id == made.session
        (again,) = histories.import_(made.path)
        assert again.version() == grown.version()
    assert sorted(histories) == sorted(["task", made.session])
    assert sent_by(fork)[: len(before) - 1] == before[:-1]
    check_sent(fork, ["☃", "four towers", "asked 0", "answered 0", "asked 1", "answered 1"])
    spent = fork.stats().spent
    assert (spent.calls, spent.prompt_tokens) == (2, 140)
    assert [event for event in fork.events(begin) if "four towers" in str(event)] == []
    assert fork.fact("four towers").known_by == task.fact("four towers").known_by


@pytest.mark.parametrize("program", PROGRAMS)
def test_compaction_in_the_program_forgets_what_was_handed_over(histories, task, program):
    made = task.continue_in(program)
    session = Program(made)
    session.say("more", "yes")
    session.compact("All about towers.")
    session.say("and now", "done")
    (grown,) = histories.import_(made.path)
    check_sent(grown, ["All about towers", "and now", "done"], never=["four towers"])
    fact = grown.fact("four towers")
    assert not fact.is_known
    assert grown.view().open_calls == ()


def test_claude_code_goes_back_to_a_line_that_was_handed_over(histories, task):
    made = task.continue_in("claude-code")
    session = Program(made)
    session.say("more", "yes")
    histories.import_(made.path)
    first = next(record for record in session.records if record["type"] == "user")
    session.last = first["uuid"]
    session.say("otherwise", "good")
    (grown,) = histories.import_(made.path)
    gone = ["four towers", "more", "yes", "It goes on in"]
    check_sent(grown, ["☃", "otherwise", "good"], never=gone)


def test_codex_takes_back_turns_that_were_handed_over(histories, task):
    made = task.continue_in("codex")
    session = Program(made)
    session.say("more", "yes")
    session.write(session.item("event_msg", {"type": "thread_rolled_back", "num_turns": 3}))
    session.say("otherwise", "good")
    (grown,) = histories.import_(made.path)
    check_sent(grown, ["otherwise"], never=["☃", "four towers", "more"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_open_call_and_summary_are_marked(histories, task, program):
    task.append(CondensationAction(forgotten_event_ids=(2, 4), summary="North", summary_offset=2))
    task.append(Action(tool="sweep", arguments={}, call_id="k3", response_id="r2"))
    made = task.continue_in(program)
    said = made.path.read_text("ascii")
    assert said.count("The outcome of this call is unknown") == 1
    assert f"{SUMMARY}\\nNorth" in said
    fork = histories[made.session]
    assert fork.view().open_calls == ()
    assert task.view().open_calls != ()


@pytest.mark.parametrize("program", PROGRAMS)
def test_second_hand_over_is_another_session(histories, task, program):
    first = task.continue_in(program)
    Program(first).say("in the first", "yes")
    (grown,) = histories.import_(first.path)
    second = grown.continue_in(next(other for other in PROGRAMS if other != program))
    Program(second).say("in the second", "yes")
    (last,) = histories.import_(second.path)
    assert last.id == second.session
    check_sent(last, ["☃", "in the first", "in the second"])
    assert last.why(2).fate == "shown"
    spent = [history.stats().spent.prompt_tokens for history in (grown, last)]
    assert spent == [70, 70]
    third = grown.continue_in(program)
    assert {*histories} == {"task", first.session, second.session, third.session}


@pytest.mark.parametrize("program", PROGRAMS)
def test_earlier_version_is_handed_over(histories, task, program):
    made = task.continue_in(program, at=2)
    assert made.version == 2
    assert "four towers" not in made.path.read_text("ascii")
    assert len(histories[made.session].view()) == 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_view_is_condensed_on_the_way(tmp_path, histories, program):
    turns = [
        Message(content=f"{kind} of pier {number}", source=source)
        for number in range(20)
        for kind, source in (("question", "user"), ("answer", "agent"))
    ]
    with open_histories(tmp_path / "store.db", condenser="conversation_window") as windowed:
        long = windowed["long"]
        long.append([*turns, Action(tool="sweep", arguments={}, call_id="k9", response_id="r9")])
        made = long.continue_in(program, condense=True)
    fork = histories[made.session]
    assert (made.version, histories["long"].version()) == (41, 41)
    assert len(histories["long"].view()) == 41
    written = made.path.read_text("ascii")
    assert "question of pier 0" in written
    assert "answer of pier 3" not in written
    assert written.count("The outcome of this call is unknown") == 1
    assert isinstance(next(fork.events(42)), CondensationAction)
    assert fork.why(7).fate == "forgotten"
    Program(made).say("asked later", "answered later")
    (grown,) = histories.import_(made.path)
    assert grown.id == made.session
    shown = ["question of pier 0", "answer of pier 19", "asked later", "answered later"]
    check_sent(grown, shown, never=["answer of pier 3"])
    assert findings_in(histories) == []


def test_view_that_cannot_be_condensed_is_not_handed_over(tmp_path, histories):
    histories["short"].append(TASK[:2])
    with pytest.raises(NoCondensationAvailable):
        histories["short"].continue_in("codex", condense=True)
    assert [*histories] == ["short"]
    assert [*tmp_path.rglob("*.jsonl")] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_session_that_also_went_on_in_foldlog_becomes_a_fork(histories, task, program):
    made = task.continue_in(program)
    fork = histories[made.session]
    fork.append(Message(content="said in foldlog", source="user"))
    Program(made).say("said there", "yes")
    (other,) = histories.import_(made.path)
    assert other.id != made.session
    check_sent(other, ["☃", "four towers", "said there"], never=["said in foldlog"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_redaction_reaches_the_records_and_names_the_file(tmp_path, task, program):
    made = task.continue_in(program)
    receipt = task.redact(4, reason="secret")
    assert any(str(made.path) in name for name in receipt.unconfirmed)
    Program(made).say("more", "yes")
    with open_histories(tmp_path / "store.db") as histories:
        (grown,) = histories.import_(made.path)
        assert "four towers" not in json.dumps([*grown.export()])
        assert "four towers" not in "".join(sent_by(grown))
        assert "more" in "".join(sent_by(grown))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_continued_session_can_be_verified_and_copied(tmp_path, histories, task, program):
    made = task.continue_in(program)
    Program(made).say("more", "yes")
    histories.import_(made.path)
    assert findings_in(histories) == []
    with open_histories(tmp_path / "copy.db") as copies:
        copies.maintenance.copy_from(histories)
        copied = copies[made.session]
        assert sent_by(copied) == sent_by(histories[made.session])
        Program(made).say("in the copy", "yes")
        (grown,) = copies.import_(made.path)
        assert grown.id == made.session


@pytest.mark.parametrize("program", PROGRAMS)
def test_export_is_the_session_file(histories, task, program):
    made = task.continue_in(program)
    Program(made).say("more", "yes")
    (grown,) = histories.import_(made.path)
    assert [*grown.export()] == records_in(made.path)


def test_encrypted_store_warns(tmp_path, histories):
    with open_histories(tmp_path / "sealed.db", keys=KeyRing(["11" * 32])) as sealed:
        sealed["task"].append(TASK)
        made = sealed["task"].continue_in("codex")
        assert "encrypted" in made.warnings[0]
        Program(made).say("more", "yes")
        (grown,) = sealed.import_(made.path)
        assert grown.id == made.session


def test_refusals_say_what_to_do(tmp_path, histories, task):
    histories["empty"].append(SystemMessage(content="You are"))
    with pytest.raises(InvalidArgument, match="'claude-code' or 'codex'"):
        task.continue_in("emacs")
    with pytest.raises(InvalidArgument, match="nothing to hand over"):
        histories["empty"].continue_in("codex")
    with pytest.raises(InvalidArgument, match="does not exist on this machine"):
        task.continue_in("codex", cwd=tmp_path / "gone")
    with pytest.raises(NoSuchVersion):
        task.continue_in("codex", at=90)
    histories["long"].append(Message(content="word " * 900_000, source="user"))
    with pytest.raises(InvalidArgument, match="--view-of CONDENSER"):
        histories["long"].continue_in("codex")
    assert sorted(histories) == ["empty", "long", "task"]
    assert [*tmp_path.rglob("*.jsonl")] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_unknown_form_of_the_newest_session_is_refused(task, program):
    made = task.continue_in(program)
    made.path.write_text('{"form": "of the next release"}\n' * 3)
    with pytest.raises(InvalidArgument, match="not in the form that foldlog writes"):
        task.continue_in(program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_failed_write_leaves_nothing(tmp_path, monkeypatch, histories, task, program):
    def fail(*arguments):
        raise OSError("no room")

    monkeypatch.setattr("foldlog._history.continuing.begin_continuation", fail)
    with pytest.raises(OSError, match="no room"):
        task.continue_in(program)
    assert [*histories] == ["task"]
    assert [*tmp_path.rglob("*.jsonl")] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_session_stays_if_the_store_cannot_say_whether_its_fork_began(
    tmp_path, monkeypatch, task, program
):
    def fail(*arguments):
        raise StoreUnavailable("the server is gone", kind="away")

    def begin(*arguments):
        begin_continuation(*arguments)
        monkeypatch.setattr(task._store, "conversation", fail)
        fail()

    monkeypatch.setattr("foldlog._history.continuing.begin_continuation", begin)
    with pytest.raises(StoreUnavailable, match="the server is gone"):
        task.continue_in(program)
    assert len([*tmp_path.rglob("*.jsonl")]) == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_import_finds_a_session_before_its_fork(tmp_path, monkeypatch, histories, task, program):
    found = []

    def begin(*arguments):
        found.extend(tmp_path.rglob("*.jsonl"))
        begin_continuation(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr("foldlog._history.continuing.begin_continuation", begin)
    with pytest.raises(KeyboardInterrupt):
        task.continue_in(program)
    assert found == []
    (file,) = tmp_path.rglob("*.jsonl")
    (fork,) = {*histories} - {task.id}
    assert fork in file.name, "the fork is in the store, so its session stays"
    assert not [*tmp_path.rglob("*.new")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_left_out_is_counted_and_has_no_size(histories, program):
    sizes = []
    for thought in ("", "a long thought " * 1_000):
        block = {"type": "thinking", "thinking": thought, "signature": "s"}
        reply = Message(content="Four.", source="agent", thinking=(block,) if thought else ())
        history = histories[f"with {len(thought)}"]
        history.append([Message(content="How many towers?", source="user"), reply])
        made = history.continue_in(program)
        sizes.append(made.tokens)
        assert made.left_out == ({"thinking": 1} if thought else {})
    assert abs(sizes[0] - sizes[1]) <= 5


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_image_counts_as_an_image(histories, program):
    data = "iVBORw0KGgo" + "A" * 4_400_000
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    histories["look"].append(
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    )
    assert histories["look"].continue_in(program).tokens < 3_000


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_session_that_is_gone_stops_nobody(task, program):
    path = task.continue_in(program).path
    name = path.name.replace(path.stem[-36:], "00000000-0000-4000-8000-000000000000")
    path.with_name(name).symlink_to(path.parent / "nothing")
    assert task.continue_in(program).path.exists()


@pytest.mark.parametrize("program", PROGRAMS)
def test_only_the_user_may_read_the_folders(tmp_path, task, program):
    path = task.continue_in(program).path
    made = [folder for folder in path.parents if tmp_path in folder.parents]
    assert made
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in made} == {0o700}


def test_a_title_has_no_control_characters(task):
    task.set_attributes(title="Light\x1b]0;x\x07 house\u009b\n2")
    records = records_in(task.continue_in("claude-code").path)
    titles = [record["customTitle"] for record in records if "customTitle" in record]
    assert titles == ["Light]0;x house 2"]


def test_a_project_has_the_folder_of_claude_code(tmp_path):
    assert folder_of("/srv/me/my.app_2") == "-srv-me-my-app-2"
    assert folder_of("/w/🚢ä") == "-w----"
    long = folder_of("/" + "lighthouse/" * 30)
    assert (len(long.rpartition("-")[0]), long[:12]) == (200, "-lighthouse-")
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    assert folder_of(str(tmp_path / "link")) == folder_of(str(real))


SAMPLES = [
    (path.stem, case["records"])
    for path in sorted((GOLDEN / "imports").glob("*.jsonl"))
    for case in read_lines(path)
    if case["name"] == "corpus"
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("format, records", SAMPLES, ids=[name for name, _ in SAMPLES])
def test_every_format_goes_over(histories, format, records, program):
    """The session alone, imported elsewhere, sends what the fork sends."""
    history = histories["sample"]
    history.append_records(records, format=format)
    made = history.continue_in(program)
    fork = histories[made.session]
    with open_histories("memory:") as others:
        (alone,) = others.import_(made.path)
        texts = "\n".join(_texts_in(alone.view().to_messages("anthropic")))
    sent = [*_texts_in(fork.view().to_messages("anthropic"))]
    assert [text for text in sent if text != BEGINNING and text not in texts] == []
    Program(made).say("more", "yes")
    (grown,) = histories.import_(made.path)
    assert grown.id == made.session
    assert "more" in "".join(sent_by(grown))


def _texts_in(value):
    """Yield the texts of blocks, and the texts in the arguments of calls."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, dict):
        for key in ("content", "text", "input", *_arguments_of(value)):
            if key in value:
                yield from _texts_in(value[key])


def _arguments_of(value):
    """Return the keys of a map if it is the arguments of a call, and not a message or a block."""
    is_arguments = not {"type", "role"} & value.keys()
    return value.keys() if is_arguments else ()


@pytest.mark.parametrize("program", PROGRAMS)
def test_fork_goes_on_without_its_parent(histories, task, program):
    made = task.continue_in(program)
    histories.erase("task", reason="asked to", detach_forks=True)
    Program(made).say("more", "yes")
    (grown,) = histories.import_(made.path)
    check_sent(grown, ["four towers", "more"])
    assert findings_in(histories) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_erased_session_is_refused(histories, task, program):
    made = task.continue_in(program)
    histories.erase(made.session, reason="asked to")
    Program(made).say("more", "yes")
    (outcome,) = Import(histories.store, [made.path])
    assert isinstance(outcome, Failed)
    assert "was erased" in str(outcome.error)
    assert [row.id for row in histories.store.conversations() if row.erased_at is None] == ["task"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_session_of_a_store_on_a_server_comes_back(tmp_path, monkeypatch, url_on, program):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    with open_histories(url_on("postgresql"), keys=KeyRing(["11" * 32])) as histories:
        histories["task"].append(TASK)
        made = histories["task"].continue_in(program, cwd=tmp_path)
        assert made.command.startswith(f"cd {tmp_path} && ")
        Program(made).say("more", "yes")
        (grown,) = histories.import_(made.path)
        assert grown.id == made.session
        assert "more" in "".join(sent_by(grown))


def test_fork_of_the_session_is_a_fork_of_the_history(histories, task):
    """``claude --fork-session`` copies all lines under the id of a new session."""
    made = task.continue_in("claude-code")
    Program(made).say("in both", "yes")
    histories.import_(made.path)
    copied = made.path.with_name("00000000-0000-4000-8000-00000000f0f0.jsonl")
    records = [{**record, "sessionId": copied.stem} for record in records_in(made.path)]
    mode = {"type": "mode", "mode": "normal", "sessionId": copied.stem}
    copied.write_text("".join(json.dumps(record) + "\n" for record in [mode, *records]))
    for number, asked in enumerate(("in the copy", "later")):
        session = Program(made._replace(path=copied), ids=f"copy-{number}")
        session.say(asked, "yes")
        (grown,) = histories.import_(copied)
        assert grown.id == copied.stem
    check_sent(grown, ["☃", "four towers", "in both", "in the copy", "later"])
    assert histories.store.conversation(grown.id).parent == made.session
    spent = [
        history.stats().spent.prompt_tokens or 0 for history in (task, histories[made.session])
    ]
    assert sum(spent) == USAGE["input_tokens"], "of the reply that both sessions share"


def test_rollout_that_codex_writes_again_is_a_fork_of_the_history(histories, task):
    """``codex migrate-rollouts`` writes all lines again, with their keys in another order, and adds
    some.
    """
    made = task.continue_in("codex")
    Program(made).say("before", "yes")
    histories.import_(made.path)
    records = records_in(made.path)
    records[0]["payload"]["history_mode"] = "paginated"
    started = {
        "timestamp": NOON.isoformat(),
        "type": "event_msg",
        "payload": {"type": "task_started"},
    }
    written = [
        records[0],
        started,
        *(
            {**record, "payload": dict(reversed(record["payload"].items()))}
            for record in records[1:]
        ),
    ]
    made.path.write_text("".join(json.dumps(record) + "\n" for record in written))
    session = Program(made)
    session.say("after", "yes")
    (grown,) = histories.import_(made.path)
    session.say("later", "yes")
    (again,) = histories.import_(made.path)
    assert grown.id == again.id
    assert grown.id != made.session
    check_sent(again, ["☃", "four towers", "before", "after", "later"])


def test_fork_of_the_session_does_not_bring_back_what_was_redacted(histories, task):
    made = task.continue_in("claude-code")
    task.redact(4, reason="secret")
    copied = made.path.with_name("00000000-0000-4000-8000-00000000f0f0.jsonl")
    records = [{**record, "sessionId": copied.stem} for record in records_in(made.path)]
    copied.write_text("".join(json.dumps(record) + "\n" for record in records))
    (outcome,) = Import(histories.store, [copied])
    assert isinstance(outcome, Failed)
    assert "was redacted" in str(outcome.error)


def titled(histories, tmp_path, kind):
    """Return a history with a title. Its kind is ``own``, or ``import``. In an ``import without a
    title``, programs take the first request for the title.
    """
    if kind == "own":
        histories["task"].append(TASK)
        histories["task"].set_attributes(title="Zanzibar plan")
        return histories["task"]
    session = "00000000-0000-4000-8000-00000000aaaa"
    path = tmp_path / f"{session}.jsonl"
    message = {"role": "user", "content": "count the lighthouses"}
    asked = {"type": "user", "uuid": "u1", "parentUuid": None, "message": message}
    title = {"type": "custom-title", "customTitle": "Zanzibar plan", "sessionId": session}
    lines = [{**asked, "sessionId": session, "cwd": str(tmp_path)}]
    if kind == "import":
        lines.append(title)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return histories.import_(path)[0]


@pytest.mark.parametrize("by", ["event", "matching", "matching everywhere"])
@pytest.mark.parametrize("kind", ["own", "import"])
def test_redaction_reaches_a_title_that_the_program_wrote_again(
    tmp_path, histories, foldlog, kind, by
):
    original = titled(histories, tmp_path, kind)
    made = original.continue_in("claude-code")
    session = Program(made)
    title = {"type": "custom-title", "customTitle": "Zanzibar plan", "sessionId": made.session}
    # Claude Code writes no spaces between the members.
    again = json.dumps(title, separators=(",", ":")) + "\n"
    with made.path.open("a") as file:
        file.write(again)
    session.say("in the session", "yes")
    histories.import_(made.path)
    title_id = original.version() - 1
    named = {
        "event": f"{original.id} {title_id}",
        "matching": f"{original.id} --matching zanzibar",
        "matching everywhere": "--matching zanzibar",
    }
    store = f"--db {tmp_path / 'store.db'}"
    done = foldlog(f"store redact {named[by]} --reason 'asked to' --yes --json {store}")
    assert (done.status, done.document["stay"]) == (0, [])
    with made.path.open("a") as file:
        file.write(again)
    session.say("after the redaction", "yes")
    (grown,) = histories.import_(made.path)
    assert grown.id == made.session
    assert "after the redaction" in "".join(sent_by(grown))
    assert b"zanzibar" not in b"".join(
        file.read_bytes().lower() for file in tmp_path.glob("store.db*")
    )


def test_redaction_reaches_a_title_that_is_the_first_request(tmp_path, histories):
    original = titled(histories, tmp_path, "import without a title")
    made = original.continue_in("claude-code")
    title = records_in(made.path)[0]
    assert title["customTitle"] == "count the lighthouses"
    session = Program(made)
    session.write(title)
    session.say("in the session", "yes")
    histories.import_(made.path)
    original.redact(0, reason="asked to")
    histories.maintenance.vacuum()
    assert b"lighthouses" not in (tmp_path / "store.db").read_bytes()


def test_redaction_says_that_the_text_is_in_what_was_handed_over(tmp_path, task, foldlog):
    made = task.continue_in("codex")
    redact = f"store redact {made.session} --matching 'four towers' --reason 'asked to' --dry-run"
    found = " ".join(foldlog(f"{redact} --db {tmp_path / 'store.db'}").out.split())
    assert "the records that were handed over to it contain the text" in found
    assert "in its title or between records" not in found


def test_a_prompt_that_waited_is_handed_over_once(tmp_path, histories):
    """Claude Code notes each prompt of ``claude -p`` in a queue, before it is sent."""
    session = "00000000-0000-4000-8000-00000000bbbb"
    path = tmp_path / f"{session}.jsonl"
    lines = []
    for turn in range(12):
        common = {"sessionId": session, "timestamp": f"2026-03-01T12:{turn:02}:00.000Z"}
        wish = f"wish of pier number {turn}"
        queued = {"type": "queue-operation", "operation": "enqueue", "content": wish, **common}
        asked = {"type": "user", "uuid": f"u{turn}", "message": {"role": "user", "content": wish}}
        content = [{"type": "text", "text": f"answer of pier {turn}"}]
        message = {"role": "assistant", "id": f"m{turn}", "content": content}
        answered = {"type": "assistant", "uuid": f"a{turn}", "message": message}
        parent = f"a{turn - 1}" if turn else None
        lines += [
            queued,
            {"parentUuid": parent, **asked, **common},
            {"parentUuid": f"u{turn}", **answered, **common},
        ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with open_histories(tmp_path / "store.db", condenser="digest") as condensing:
        (long,) = condensing.import_(path)
        made = long.continue_in("codex", cwd=tmp_path, condense=True)
        view = condensing[made.session].view()
        assert any(isinstance(event, CondensationSummary) for event in view)
        texts = "\n".join(json.dumps(message) for message in view.to_messages("openai"))
    wishes = [texts.count(f"wish of pier number {turn}") for turn in (0, 5, 11)]
    assert wishes == [1, 1, 1]


def test_figures_are_of_the_program_that_goes_on(tmp_path, histories, foldlog):
    path = tmp_path / "rollout-2026-03-01T12-00-00-01998190-fba6-7f40-9309-dc4e48c5844a.jsonl"
    usage = {"input_tokens": 90_000, "output_tokens": 7, "total_tokens": 90_007}
    info = {
        "total_token_usage": usage,
        "last_token_usage": usage,
        "model_context_window": 100_000,
    }
    meta = {"id": path.stem[-36:], "timestamp": NOON.isoformat(), "cwd": str(tmp_path)}
    message = {"type": "message", "role": "user"}
    message["content"] = [{"type": "input_text", "text": "hello"}]
    items = [
        ("session_meta", meta),
        ("response_item", message),
        ("event_msg", {"type": "token_count", "info": info}),
    ]
    lines = [{"timestamp": NOON.isoformat(), "type": kind, "payload": item} for kind, item in items]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (original,) = histories.import_(path)
    made = original.continue_in("claude-code")
    Program(made).say("more", "yes")
    (grown,) = histories.import_(made.path)
    stats = [history.stats() for history in (original, grown)]
    assert [(figures.peak_prompt_tokens, figures.max_input_tokens) for figures in stats] == [
        (90_000, 100_000),
        (70, None),
    ]
    rows = foldlog(f"list --json --db {tmp_path / 'store.db'}").document["conversations"]
    formats = {row["conversation"]: row["format"] for row in rows}
    assert formats == {original.id: "codex", grown.id: "claude-code"}


@pytest.mark.parametrize(
    "content, written",
    [
        ("Exit code 2\nls: no", "Exit code: 2\nOutput:\nls: no"),
        ("ls: no\n[The command completed with exit code 2.]", None),
        ("fog bank", "Exit code: 1\nOutput:\nfog bank"),
        ("done\nexit code 0", "Exit code: 1\nOutput:\ndone\nexit code 0"),
    ],
)
def test_a_failed_result_names_its_exit_code_once(histories, content, written):
    failed = Observation(content=content, tool="run", call_id="k", is_error=True)
    call = Action(tool="run", arguments={}, call_id="k", response_id="r")
    histories["failed"].append([Message(content="go", source="user"), call, failed])
    made = histories["failed"].continue_in("codex")
    outputs = [record["payload"].get("output") for record in records_in(made.path)]
    assert [output for output in outputs if output] == [written or content]


def test_a_failed_result_of_a_handed_over_session_is_read(tmp_path, task):
    made = task.continue_in("codex")
    with open_histories(tmp_path / "other.db") as others:
        (outcome,) = Import(others.store, [made.path])
        findings = []
        make_events(others.store, outcome.conversation, findings)
        assert findings == []
        failed = [event for event in others[outcome.conversation].view() if is_failed(event)]
        assert [event.content for event in failed] == ["fog bank"]


def is_failed(event):
    return isinstance(event, Observation) and event.is_error


@pytest.mark.parametrize("program", PROGRAMS)
def test_commands_of_the_program_are_left_out(histories, program):
    said = [
        ("user", "count the towers"),
        ("agent", "four"),
        ("environment", "<local-command-caveat>Caveat: The messages below</local-command-caveat>"),
        ("user", "<command-name>/theme</command-name>\n<command-args></command-args>"),
        ("user", "<local-command-stdout>Theme set to dark</local-command-stdout>"),
        ("user", "<command-name>/review</command-name>\n<command-args>42</command-args>"),
        ("agent", "No response requested."),
        ("user", "<command-name>/exit</command-name>\n<command-args></command-args>"),
        ("user", "<local-command-stdout>See ya!</local-command-stdout>"),
    ]
    histories["said"].append([Message(content=text, source=source) for source, text in said])
    made = histories["said"].continue_in(program)
    assert made.left_out == {"command of the program": 5, "context of the program": 1}
    check_sent(
        histories[made.session],
        ["count the towers", "/review"],
        never=["/theme", "/exit", "See ya", "Caveat", "No response"],
    )


def test_one_note_names_the_programs_before(histories, task):
    history = task
    for program in ("codex", "claude-code", "codex"):
        made = history.continue_in(program)
        Program(made).say(f"in {program}", "yes")
        (history,) = histories.import_(made.path)
        notes = [message for message in sent_by(history) if "[foldlog]" in message]
        assert len(notes) == 1
    (note,) = notes
    assert "ran in another program, then in Codex, then in Claude Code. It goes on in Codex" in note
    assert "foldlog" not in "".join(made.left_out)


def test_redacted_content_is_counted_as_left_out(task):
    task.redact(4, reason="secret")
    made = task.continue_in("codex")
    assert made.left_out == {"system prompt": 1, "redacted content": 1}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_system_needs_no_hard_links(monkeypatch, histories, task, program):
    def refuse(*paths: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    made = task.continue_in(program)
    assert [path.name for path in made.path.parent.iterdir()] == [made.path.name]
    assert made.path.stat().st_size > 0
    assert len([*histories]) == 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_cannot_be_written_is_named(tmp_path, histories, task, foldlog, program):
    (tmp_path / "codex").write_text("a file in the place of the folder")
    (tmp_path / "claude").write_text("a file in the place of the folder")
    with pytest.raises(OSError, match=r"cannot be written: .*; nothing was handed over"):
        task.continue_in(program)
    refused = foldlog(f"continue task --in {program} --db {tmp_path / 'store.db'}")
    assert refused.status == 2
    assert "Errno" not in refused.err
    assert "cannot be written" in refused.err
    assert [*histories] == ["task"]


def test_the_command_is_safe_for_shell_and_terminal(tmp_path, task):
    for name in ("a\nb\x1b[31m'q\\ x", "tab\there", "right\u202eleft", "$HOME `id`"):
        folder = tmp_path / name
        folder.mkdir()
        made = task.continue_in("codex", cwd=folder)
        assert made.command.isprintable()
        change, resume = made.command.split(" && ")
        assert resume == f"codex resume {made.session}"
        shell = subprocess.run(
            ["bash", "-c", f"{change} && pwd"],
            capture_output=True,
            check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert shell.stdout.decode() == f"{folder}\n"


def test_a_folder_whose_name_is_not_text_is_refused(tmp_path, task):
    folder = os.path.join(os.fsencode(tmp_path), b"l\xff")
    os.mkdir(folder)
    with pytest.raises(InvalidArgument, match="is not UTF-8"):
        task.continue_in("codex", cwd=os.fsdecode(folder))
