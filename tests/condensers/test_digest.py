"""The digest: facts from the events themselves, the same every time, bounded, and carried from
digest to digest. It tells the truth: whose words these are, what failed, and what was asked.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from foldlog.condensers.strategies.digest import Digest, DigestCondenser
from foldlog.condensers.strategies.digest.commands import only_reads
from foldlog.condensers.strategies.digest.layout import LENGTH_LEAST, text_of
from foldlog.condensers.strategies.digest.names import names_in
from foldlog.condensers.strategies.user_words import (
    denial_in,
    error_line,
    gist_of_output,
    of_user,
    orders_in,
    unwrapped,
)
from foldlog.condensers.unseen import step
from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Message,
    Observation,
)
from foldlog.projections import View
from tests.condensers.made import (
    SYSTEM,
    after,
    answer,
    call,
    message,
    messages,
    pair,
    parts_with,
    plan,
    viewed,
)
from tests.condensers.scripted import Characters
from tests.how_many import examples
from tests.properties.histories import histories
from tests.said import ids

LENGTH = 6_000
REPORTED = "Reported by the agent"
UNSEEN = "(files that programs wrote are here only if an output names them)"
UNCHECKED = "since the last change, of {}: no test, lint or build command"


def told(events, length=LENGTH):
    return text_of(Digest.of(events), length)


def digest(*events):
    return told(viewed(*events).events)


def lines(text, heading):
    return [
        line[2:] for line in text.partition(f"## {heading}\n")[2].partition("\n\n")[0].splitlines()
    ]


def section(text, heading):
    """The lines without the ids at their ends."""
    return [re.sub(r" \[\d+\]$", "", line) for line in lines(text, heading)]


def ran(number, command, exit_code=None, content="done", **fields):
    extras = {} if exit_code is None else {"metadata": {"exit_code": exit_code}}
    return [
        call("execute_bash", f"r{number}", command=command),
        answer(content, f"r{number}", extras=extras, **fields),
    ]


# --- facts ---


def test_what_the_user_asked_and_the_agent_said():
    text = digest(message("fix the\nparser"), message("On it.", "agent"), message("be quick"))
    assert section(text, "Asked by the user") == ["fix the parser", "be quick"]
    assert section(text, "Said by the agent") == ["On it."]
    assert text.startswith("# Digest of 3 events, up to [2]; the conversation goes on\n")
    assert told([]) == "# Digest of 0 events"


def test_texts_in_parts_of_any_type_are_said_and_their_names_are_known():
    for kind, part in parts_with("read harbour/gauges.py first").items():
        text = digest(message((part,)), answer((part,)))
        assert section(text, "Asked by the user")[0].endswith("read harbour/gauges.py first"), kind
    text = digest(
        pair(1, "write", text="see\n" + "the way of all things to " * 20 + "depot/gauges.py", a={}),
        message((part,), "agent"),
    )
    assert "depot/gauges.py" in section(text, "Lines with names")[0]
    assert section(text, "Said by the agent")[0].endswith("read harbour/gauges.py first")


def test_what_was_thought_and_finished_with_is_said():
    think = Action(
        tool="think", arguments={"thought": "the week is read as a month"}, thought="Hm."
    )
    finish = Action(tool="finish", arguments='{"message": "all done"}')
    text = digest(think, finish)
    assert section(text, "Said by the agent") == ["Hm.", "the week is read as a month", "all done"]
    assert "Other calls" not in text


def test_commands_with_their_exit_codes_however_the_source_says_them():
    text = digest(
        ran(1, "pytest -q", 1, "E  AssertionError"),
        ran(2, "git pull", 0),
        [call("shell", "s", command=["bash", "-lc", "make"]), answer("a.py\nExit code: 2", "s")],
        [
            call("terminal", "t", cmd="./run", workdir="/w/kite"),
            answer("/w", "t", extras={"exit_code": 0}),
        ],
        ran(3, "sleep 99", -1),
    )
    assert section(text, "Commands run") == [
        "`pytest -q` → exit 1: E AssertionError",
        "`git pull` → exit 0: done",
        "`make` → exit 2: a.py",
        "`./run` in /w/kite → exit 0: /w",
        "`sleep 99` → done",
    ]


def test_files_that_were_read_and_files_that_were_changed():
    text = digest(
        pair(1, "read", path="/w/a.py"),
        pair(2, "str_replace_editor", command="view", path="/w/b.py"),
        pair(
            3, "str_replace_editor", command="str_replace", path="/w/c.py", old_str="a", new_str="b"
        ),
        pair(4, "Write", file_path="/w/d.py", content="x"),
        pair(5, "read", path="/w/a.py"),
    )
    assert section(text, "Read, searched and printed") == ["/w/b.py", "/w/a.py"]
    assert section(text, "Files changed") == ["/w/c.py: edited", "/w/d.py: written"]


def test_an_error_is_open_until_the_same_succeeds():
    failed = ran(1, "make", 2, "cc: error\nld: cannot find -lz")
    assert section(digest(failed), "Errors without a later success") == [
        "`make` → ld: cannot find -lz"
    ]
    assert "Errors without a later success" not in digest(failed, ran(2, "make", 0))
    assert section(
        digest(ran(1, "make", 0), ran(2, "make", 1)), "Errors without a later success"
    ) == ["`make` → done"]


def test_what_openhands_says_after_an_output_is_not_the_error():
    ended = (
        "E  torn\n[Current working directory: /w]\n[Python interpreter: /p]\n[Command finished with"
        " exit code 1]"
    )
    assert section(digest(ran(1, "make", 1, ended)), "Errors without a later success") == [
        "`make` → E torn"
    ]


def test_what_the_user_did_is_not_said_by_the_agent_and_a_recall_is_no_call():
    run = Action(
        tool="run",
        arguments={"command": "make"},
        thought="User executed the command:\nmake",
        source="user",
    )
    recall = Action(
        tool="recall", arguments={"query": "kites", "recall_type": "knowledge"}, source="user"
    )
    text = digest(replace(run, call_id="u"), answer("ok", "u"), recall)
    assert section(text, "Commands run") == ["`make` → ok"]
    assert "Said by the agent" not in text
    assert "Other calls" not in text


def test_an_error_that_says_nothing_and_one_of_a_call_that_is_gone():
    assert "Errors" not in digest(ran(1, "grep x y", 1, ""))
    text = digest(Observation(content="no such tool", tool="fly", is_error=True))
    assert section(text, "Errors without a later success") == ["fly → no such tool"]


def test_the_newest_list_of_tasks_takes_the_place_of_the_one_before():
    first = pair(
        1,
        "task_tracker",
        task_list=[{"id": "T1", "title": "reproduce", "status": "todo"}, {"title": "old"}],
    )
    second = pair(2, "TodoWrite", todos=[{"content": "mend", "status": "in_progress"}])
    assert section(digest(first), "Tasks") == ["[todo] T1: reproduce", "[open] old"]
    assert section(digest(first, second), "Tasks") == ["[in_progress] mend"]


def test_calls_of_any_other_kind_are_named_with_what_they_were_given():
    text = digest(pair(1, "cancel_reservation", reservation_id="GV1N64"))
    assert section(text, "Other calls") == [
        'cancel_reservation {"reservation_id": "GV1N64"} → done'
    ]


def test_a_line_ends_with_the_event_that_says_it():
    failed = ran(6, "make", 2, "no rule")
    text = digest(
        message("fix it"),  # 0
        pair(1, "read", path="/w/a.py"),  # 1, 2
        pair(2, "Write", file_path="/w/d.py", content="x"),  # 3, 4
        pair(3, "cancel", order="GV1N64"),  # 5, 6
        ran(4, "git pull", 0),  # 7, 8
        failed,  # 9, 10
        message("On it.", "agent"),  # 11
    )
    assert lines(text, "Asked by the user") == ["fix it [0]"]
    assert lines(text, "Read, searched and printed") == ["/w/a.py [2]"]
    assert lines(text, "Files changed") == ["/w/d.py: written [3]", UNSEEN]
    assert lines(text, "Other calls") == ['cancel {"order": "GV1N64"} → done [6]']
    assert lines(text, "Commands run") == [
        "`git pull` → exit 0: done [8]",
        "`make` → exit 2: no rule [10]",
    ]
    assert lines(text, "Errors without a later success") == ["`make` → no rule [10]"]
    assert lines(text, "Said by the agent") == ["On it. [11]"]


def test_a_request_that_is_cut_keeps_its_id():
    events = [Message(id=10 + n, source="user", content=f"{n} " + "word " * 900) for n in range(4)]
    asked = lines(told(events, 3_000), "Asked by the user")
    assert [line.rpartition(" ")[2] for line in asked[1:]] == ["[10]", "[13]"]
    assert asked[0] == "(2 earlier left out)"
    assert asked[1].endswith("… [10]")
    assert "characters and more left out" in asked[-1]


def test_a_conclusion_is_whole_where_room_is_left_and_cut_where_others_need_it():
    conclusion = "Root cause: " + "evidence " * 60 + "the fix is in b.py"
    events = [message(f"{n} {conclusion}", "agent") for n in range(20)]
    work = [e for n in range(300) for e in ran(n, f"cmd {n}", 0)]
    *older, newest = section(digest(events, work), "Said by the agent")[1:]
    assert {line[-1] for line in older} == {"…"}
    assert newest == f"19 {conclusion}"


@pytest.mark.parametrize(
    "agent, user, asked",
    [
        (
            "Done. Shall I delete the branch?\nIt is merged.",
            "yes",
            "yes (the agent had asked: Shall I delete the branch? [0])",
        ),
        ("Done. It is merged.", "ok", "ok"),
        (
            "Shall I?",
            "no, first rename it and then tell me",
            "no, first rename it and then tell me",
        ),
    ],
)
def test_a_short_answer_stands_with_its_question(agent, user, asked):
    assert section(digest(message(agent, "agent"), message(user)), "Asked by the user") == [asked]
    earlier = Digest.of([replace(message(agent, "agent"), id=0)])
    assert section(text_of(earlier.plus([message(user)]), LENGTH), "Asked by the user") == [asked]


def test_an_error_that_the_agent_left_behind_is_no_longer_open():
    failed = ran(0, "make", 2, "no rule")
    work = [event for n in range(1, 31) for event in pair(n, "read", path=f"/w/{n}.py")]
    assert section(digest(failed, work[2:]), "Errors without a later success") == [
        "`make` → no rule"
    ]
    assert "Errors without a later success" not in digest(failed, work)
    assert "Errors without a later success" not in digest(message("go on"), work[:18], failed, work)
    events = viewed(failed, work).events
    first = Digest.of(events[:40])
    assert "Errors without a later success" in text_of(first, LENGTH)
    assert "Errors without a later success" not in text_of(first.plus(events[40:]), LENGTH)


# --- what was sent, and how the user answered ---


def test_what_was_sent_stands_with_the_link_that_a_result_shows():
    post = (
        "cat > b.md <<'EOF'\n# Kites\nEOF\ncurl -sS -X POST \\\n -H 'A: b'"
        " https://api.kites.org/issues -d @b.md"
    )
    issue, posted = "https://kites.org/issues/7", "`curl POST https://api.kites.org/issues`"
    repeated = ran(1, post, 0, post)
    assert section(digest(repeated), "Commands run")[0].endswith("(4 lines)` → output not shown")
    assert section(digest(repeated), "Built so far") == [
        f"not confirmed as sent: {posted} → output not shown",
        UNCHECKED.format("b.md"),
    ]
    text = digest(
        repeated,
        ran(2, post, 0, f"{issue}\nA warning"),
        ran(3, "gh api pulls/1/replies -f body=yes", 0, json.dumps({"id": 4, "html_url": issue})),
        ran(4, "ls", 0, f"late\n^L{issue}\na.py"),
    )
    assert section(text, "Built so far") == [
        f"sent: `curl POST` → exit 0: {issue}",
        f"sent: `gh api pulls/1/replies -f body` → exit 0: {issue}",
        UNCHECKED.format("b.md"),
    ]


def test_the_output_of_an_earlier_command_is_not_that_of_a_later_one():
    first, second = (
        "cat > a.md <<'EOF'\n# Kites\nEOF\n./post a.md",
        "gh issue create --title kite && ./show",
    )
    late = "cat > a.md <<'EOF'\n# Kites\nEOF\n./post a.md\nhttps://kites.org/issues/7\n"
    text = digest(
        ran(1, first, 0, late[:36]),
        ran(2, second, 0, late),
        ran(3, second, 0, f"{late}{second}\nshown"),
    )
    assert section(
        digest(ran(1, first, 0, late[:36]), ran(2, second, 0, late)), "Commands run"
    ) == [
        "`cat > a.md <<'EOF' … (3 lines)` → https://kites.org/issues/7",
        f"`{second}` → output not shown",
    ]
    assert section(text, "Built so far") == [
        "sent: `gh issue create --title kite` → exit 0: shown",
        UNCHECKED.format("a.md"),
    ]


def test_what_was_sent_counts_when_the_next_result_has_its_link():
    post = "cat > a.md <<'EOF'\n# Kites\nEOF\ncurl -X POST https://api.kites.org/issues -d @a.md"
    text = digest(
        ran(1, post, 0, post),
        ran(2, "ls -la kites", 0, f"{post}\n^Lhttps://kites.org/issues/7\nls -la kites\na.py"),
    )
    assert lines(text, "Built so far") == [
        "sent: `curl POST` → https://kites.org/issues/7 [3]",
        f"{UNCHECKED.format('a.md')} [0]",
    ]
    assert "a.md: written; last: # Kites [0]" in text


@pytest.mark.parametrize(
    "begin",
    [
        "Command running in background with ID: b1",
        "Process running with session ID 71",
        "<status>running</status>",
    ],
)
def test_nothing_is_known_of_the_end_of_a_command_that_goes_on(begin):
    text = digest(pair(1, "run", begin, command="make test"))
    assert section(text, "Built so far") == ["last test: `make test` → output not shown"]
    assert section(text, "Commands run") == ["`make test` → output not shown"]
    ended = pair(2, "output", "error: no tail\nExit code: 2", bash_id="b1")
    assert section(digest(ended), "Other calls") == [
        'output {"bash_id": "b1"} → exit 2: error: no tail'
    ]


def test_what_a_server_a_pipe_or_the_user_may_have_refused_was_not_sent():
    post, refused = (
        "curl -X POST https://api.kites.org/issues -d @b.md",
        "error: failed to push some refs",
    )
    text = digest(
        ran(1, post, 0, ""),
        ran(2, "git push 2>&1 | tail -1", 0, refused),
        pair(3, "bash", "Please read it first.", command="git push origin"),
    )
    assert section(text, "Built so far") == [
        "not confirmed as sent: `curl POST https://api.kites.org/issues` → exit 0: no output"
    ]
    assert section(text, "Commands run") == [
        f"`{post}` → exit 0: no output",
        f"`git push 2>&1 | tail -1` → exit 0: {refused}",
        "`git push origin` → Please read it first.",
    ]
    pushed = pair(4, "bash", "   0123abc..4567def  main -> main", command="git push origin")
    assert "sent: `git push origin`" in digest(pushed)


def test_what_a_command_that_failed_did_first_is_not_known():
    text = digest(ran(1, "make && mv a.py b.py", 2, "no rule"), ran(2, "rm c.py", 0, ""))
    assert section(text, "Files changed") == [
        "a.py: moved to b.py by a command that failed",
        "b.py: moved from a.py by a command that failed",
        "c.py: deleted",
    ]


@pytest.mark.parametrize(
    "words, denial",
    [
        ("It wasnt posted, though. Try again", "It wasnt posted, though"),
        ("no, it is red", "no, it is red"),
        ("I don't see it there. Try an issue", "I don't see it there"),
        ("but I don't see it, did you post it?", "but I don't see it"),
        ("I don't see why you did that?", ""),
        ("Why is it not red?", ""),
        ("Don't forget the tail.", ""),
        ("Nothing else", ""),
        ("yeah, I hope there isn't one", "yeah, I hope there isn't one"),
    ],
)
def test_an_answer_stands_at_its_event_and_the_report_before_it_is_the_agents(words, denial):
    text = digest(
        ran(1, "make", 0),
        message("I have posted the comment about kites.", "agent"),
        message(words),
    )
    answered = " (the user answered in [3])" if denial else ""
    report = f"the agent said{answered}: I have posted the comment about kites."
    assert f"- {report} [2]" in text.splitlines()
    assert section(text, "Asked by the user")[-1].startswith(words)
    assert denial_in(words) == denial


def test_a_message_that_waits_is_asked_and_one_that_comes_twice_is_marked():
    queued = Annotation(
        id=2, name="queue-operation", data={"operation": "enqueue", "content": "and the tail"}
    )
    text = told([user("mend it"), queued])
    assert section(text, ASKED) == ["mend it", "and the tail (written while the agent worked)"]
    text = told([user("mend it"), queued, user("and the tail"), user("mend it")])
    assert section(text, ASKED) == ["and the tail", "mend it (asked again)"]


@pytest.mark.parametrize(
    "output, ending",
    [
        ("0 issues.\n[lint] $ golangci-lint run", "0 issues."),
        ("1 issues:\n* forbidigo: 1", "1 issues:"),
        ("see the log\nin a.log", "in a.log"),
    ],
)
def test_any_linter_is_a_check_and_its_line_says_how_it_ended(output, ending):
    text = digest(ran(1, "golangci-lint run 2>&1 | head -100", content=output))
    checked = f"`golangci-lint run 2>&1 | head -100` → {ending}"
    assert section(text, "Built so far") == [f"last lint: {checked}"]
    assert section(text, "Commands run") == [checked]


def test_what_was_checked_or_said_before_a_change_names_the_changed_file():
    report = "The kite is folded and it flies: all tests pass."
    correction = "You are right, the tail is in the way; I remove it."
    events = [
        message("fold it"),
        ran(1, "pytest -q", 0, "3 passed in 1 s\nbye"),
        ran(2, "ruff check", 0, ""),
        message(report, "agent"),
        message("why the tail?"),
        message(correction, "agent"),
        pair(
            3,
            "Edit",
            file_path="/w/tail.py",
            old_string="tail = 1\n# long",
            new_string="# cut\ntail = 0",
        ),
    ]
    text = digest(*events)
    assert section(text, "Commands run") == [
        "`pytest -q` → exit 0: 3 passed in 1 s; changed since: tail.py",
        "`ruff check` → exit 0: no output; changed since: tail.py",
    ]
    assert section(text, "Built so far") == [
        "last test: `pytest -q` → exit 0: 3 passed in 1 s",
        "last lint: `ruff check` → exit 0: no output",
        UNCHECKED.format("tail.py"),
    ]
    assert section(text, REPORTED) == [
        f"the agent said (changed since: tail.py): {report}",
        f"the agent said before the newest change: {correction}",
    ]
    assert section(text, "Files changed") == [
        "/w/tail.py: edited; last: tail = 1 -> tail = 0",
        UNSEEN,
    ]
    reported = section(digest(*events, message(report, "agent"), message("thanks")), REPORTED)
    assert reported == [f"the agent said: {report}"], "the report of the turn takes its place"


def test_tasks_that_are_made_and_changed_one_by_one():
    make = [
        pair(
            n,
            "TaskCreate",
            f"Task #{n} created successfully: sew {n}",
            subject=f"sew {n}",
            activeForm="x",
        )
        for n in (1, 2)
    ]
    text = digest(
        *make, pair(3, "TaskUpdate", "Updated task #2 status", taskId="2", status="completed")
    )
    assert section(text, "Tasks") == ["[pending] 1: sew 1"]
    assert section(text, "Built so far") == ["task done: 2: sew 2"]
    assert "Other calls" not in text
    again = pair(4, "TaskUpdate", "Updated task #2 status", taskId="2", status="in_progress")
    assert "task done" not in digest(
        *make, pair(3, "TaskUpdate", "", taskId="2", status="completed"), again
    )


def test_an_editor_that_names_its_file_only_in_the_result():
    shown = "[File: /w/kite.py (9 lines total)]\n1:tail = 0\n"
    text = digest(
        pair(
            1,
            "edit",
            f"Text replaced. Edit the file again if necessary.\n{shown}",
            search="tail = 1",
            replace="tail = 0",
        ),
        message("Now the wind.\n<command>\nedit 1:1\nwind = 2\nend_of_edit\n</command>", "agent"),
        message(
            f"{shown.replace('kite', 'wind')}File updated. Please review the changes", "environment"
        ),
        pair(
            2,
            "edit",
            f"Your proposed edit has a syntax error.\n{shown.replace('kite', 'rain')}",
            search="a",
            replace="b",
        ),
    )
    assert section(text, "Files changed") == [
        "/w/kite.py: edited, applied",
        "/w/wind.py: edited; last, applied: wind = 2",
    ]
    assert "Commands run" not in text


@pytest.mark.parametrize(
    "result, is_error, applied",
    [
        ("File updated. Please review the changes", False, True),
        ("The file /w/a.py has been edited successfully.", False, True),
        ("The file /w/a.py has been updated. Here is what it is.\nValueError: kite", True, True),
        ("done", False, False),
    ],
)
def test_a_changed_file_says_that_its_edit_was_applied_where_the_result_does(
    result, is_error, applied
):
    call = Action(tool="edit", call_id="c", arguments={"path": "/w/a.py", "new_str": "kite = 1"})
    text = digest([call, Observation(content=result, call_id="c", is_error=is_error)])
    last = "last, applied" if applied else "last"
    assert section(text, "Files changed") == [f"/w/a.py: edited; {last}: kite = 1"]
    assert "Errors" not in text


def test_a_line_that_is_cut_keeps_the_new_text_of_an_edit_and_not_the_old():
    events = []
    for number in range(6):
        edit = {
            "path": f"/w/{'kites/' * 8}kite{number}.py",
            "old_str": f"wind_that_is_gone_by_now_{number} = 1",
            "new_str": f"fly_{number}()  # {'and on ' * 30}",
        }
        events += [call("edit", f"c{number}", **edit), answer("done", f"c{number}")]
    *older, newest = section(told(viewed(*events).events, length=1_800), "Files changed")
    assert "gone_by_now_5 = 1 -> fly_5" in newest
    assert [line.partition("last: ")[2][:9] for line in older] == [
        f"… -> fly_{number}"[:9] for number in range(5)
    ]


@pytest.mark.parametrize(
    "refusal",
    [
        "Your changes have NOT been applied. Please fix your edit command.",
        "No replacement was performed, old_str did not appear verbatim in /w/a.py.",
    ],
)
def test_an_edit_that_its_result_refuses_changed_nothing(refusal):
    result = f"Here is the error: invalid syntax\n{refusal}\n- E999 SyntaxError: kite"
    text = digest(pair(1, "edit", result, path="/w/a.py", new_str="kite = 1"))
    assert "Files changed" not in text
    assert section(text, "Errors without a later success") == [f"/w/a.py → {refusal}"]


def test_an_edit_of_the_open_file_that_is_refused_is_open_until_another_is_applied():
    def edited(line, result):
        command = f"Now.\n<command>\nedit {line}:{line}\nkite = {line}\nend_of_edit\n</command>"
        return [message(command, "agent"), message(result, "environment")]

    refusal = "Your changes have NOT been applied. Please fix your edit command."
    refused = edited(1, f"- E999 SyntaxError: kite\n{refusal}")
    text = digest(refused)
    assert section(text, "Errors without a later success")[0].endswith(f" → {refusal}")
    trace = (
        '  File "/bin/_split", line 17\n    from kites import wind\n    ^\n'
        "SyntaxError: no such kite\n"
    )
    updated = "[File: /w/a.py (9 lines total)]\n1:kite = 2\nFile updated."
    text = digest(refused, edited(2, trace + updated))
    assert "Errors" not in text
    assert "no such kite" not in text
    assert section(text, "Files changed") == ["/w/a.py: edited; last, applied: kite = 2"]


def test_an_error_names_its_files_that_were_changed_since():
    write = [
        event
        for n, path in enumerate(["/w/b/kite.yml", "/w/wind.yml", "/w/a-kite.yml"], start=3)
        for event in pair(n, "Edit", path=path, old_string="a", new_string="b")
    ]
    failed = [
        *ran(1, "ruby -e \"load('/w/b/kite.yml')\"", 1, "Error: bad"),
        *ran(2, "build", 1, "Error in /v/wind.yml"),
    ]
    text = digest(failed, write)
    assert section(text, "Errors without a later success") == [
        "`ruby -e \"load('/w/b/kite.yml')\"` → Error: bad; changed since: kite.yml [4]",
        "`build` → Error in /v/wind.yml",
    ]
    assert (
        "changed since" not in section(digest(write, failed), "Errors without a later success")[0]
    )


@pytest.mark.parametrize(
    "result",
    [
        "<tool_use_error>Sibling tool call errored</tool_use_error>",
        "<tool_use_error>Cancelled: parallel tool call Bash(make) errored</tool_use_error>",
    ],
)
def test_a_call_that_was_cancelled_because_one_beside_it_failed_is_no_error(result):
    cancelled = [
        Action(tool="bash", arguments={"command": "make kite"}, call_id="c"),
        Observation(tool="bash", content=result, call_id="c", is_error=True),
    ]
    text = digest(ran(1, "make wind", 2, "no rule"), cancelled)
    assert section(text, "Errors without a later success") == ["`make wind` → no rule"]
    assert section(text, "Commands run")[-1] == "`make kite` → not run: a call beside it failed"


def test_a_file_that_a_command_names_from_a_folder_is_the_file_that_is_known():
    text = digest(
        pair(1, "Edit", file_path="/w/src/kite.py", old_string="a", new_string="b"),
        ran(2, "git checkout -- src/kite.py", 0),
        ran(3, "cat > a.md <<'A'\none line\nA\ncat > b.md <<'B'\nanother\nB", 0),
    )
    assert section(text, "Files changed") == [
        "/w/src/kite.py: edited, restored by git",
        "a.md: written",
        "b.md: written",
    ]


# --- names ---


def test_a_name_stands_with_the_line_and_the_event_that_had_it_last():
    text = digest(
        message("mend src/kite.py"),  # 0
        ran(1, "rg fly src/", 0, "src/kite.py:12: def flyHigh(wind_speed)\nsrc/wind.py:3"),  # 1, 2
        pair(
            2,
            "Read",
            "  7→rain = depot.load(42)\n\\nsnow_fall = 3\n    at node:internal/a_b:1:2",
            file_path="/w/a.py",
        ),
    )
    assert lines(text, "Read, searched and printed") == [
        "`rg fly src/`: src/kite.py:12: def flyHigh(wind_speed) | src/wind.py:3 [2]",
        "/w/a.py: rain = depot.load(42) | snow_fall = 3 [4]",
    ]


def test_a_sentence_around_a_name_is_whole_or_a_mark_shows_the_cut():
    whole = "A KiteDepot cannot join tables without keys between them."
    read = (
        f"Note: read on. {whole} See below.\n"
        + "if wind: kite_tail = depot.load(rain) + depot.keep(rain, snow)"
    )
    (line,) = lines(
        digest(pair(1, "Read", read, file_path="/w/a.md")), "Read, searched and printed"
    )
    code = "if wind: kite_tail = … kite_tail = depot.load(rain) + … + depot.keep(rain, snow)"
    assert line == f"/w/a.md: …{whole}… | {code} [1]"


_MADE = r"(?:found/|used_)\w+"


def test_names_take_a_quarter_and_those_that_other_lines_have_are_not_repeated():
    results = [
        pair(
            n,
            "see",
            "".join(f"found/a_{n}_{k} " for k in range(30)),
            at=f"used_{n} at used_more_{n}",
        )
        for n in range(80)
    ]
    for events in (
        [message("look"), *results],
        [message("look at kite_tail and wind/a_1"), *results[:1]],
    ):
        text = digest(*events)
        others, _, names = text.partition("\n\n## Lines with names\n")
        read = section(text, "Read, searched and printed")
        assert len(names) <= 0.25 * len(text)
        known = set(re.findall(_MADE, others.partition("\n\n## Read")[0]))
        for words in "\n".join([*read, names]).split(" | "):
            new = set(re.findall(_MADE, words.rpartition(": ")[2]))
            assert new - known or not new
            known |= new


def test_what_a_runtime_wrote_before_the_first_request_is_not_the_first_message():
    context = message("<environment_context>\n  <cwd>/w</cwd>\n</environment_context>")
    work = [pair(n, command=f"make {n} {'x' * 80}") for n in range(40)]
    for begin, head in (([context], 2), ([], 1), ([context, message("cwd: /w", "environment")], 3)):
        view = viewed(*begin, message("mend the kite"), *work)
        shown = after(view, DigestCondenser(max_size=30).condense(view))
        assert [event.id < 0 for event in shown].index(True) == head


def test_a_digest_that_a_reset_made_the_first_event_is_replaced_by_the_next():
    condenser = DigestCondenser(max_size=30)
    for begin in ([], [SYSTEM]):
        view = viewed(
            *begin,
            message("mend the kite"),
            *[pair(n, command=f"make {n} {'x' * 80}") for n in range(40)],
        )
        view = after(view, condenser.hard_context_reset(view))
        more = [event for n in range(40) for event in pair(n, command=f"fly {n} {'x' * 80}")]
        view = view.then(
            [replace(event, id=view.version + place) for place, event in enumerate(more)]
        )
        (summary,) = (event for event in after(view, condenser.condense(view)) if event.id < 0)
        assert "mend the kite" in summary.content


# --- one digest after the other ---


def as_summary(text):
    return CondensationSummary(id=-2, content=text)


def test_a_fold_in_parts_is_the_fold_at_once():
    events = viewed(
        message("fix it"), ran(1, "make", 2, "no rule"), ran(2, "git push", 0), ran(3, "make", 0)
    ).events
    whole = text_of(Digest.of(events), LENGTH)
    assert "Errors without a later success" not in whole, (
        "the later success closes the earlier error"
    )
    first = Digest.of(events[:5])
    before = text_of(first, LENGTH)
    assert text_of(first.plus(events[5:]), LENGTH) == whole
    assert text_of(first, LENGTH) == before, "a digest stays as it is"


def test_a_summary_that_is_no_digest_is_quoted_until_another_takes_its_place():
    text = told([as_summary("USER CONTEXT: weeks\n## Notes\n- one"), message("go on")])
    assert text.endswith("## Earlier summary\n- USER CONTEXT: weeks / ## Notes / - one")
    made = CondensationAction(
        id=5,
        forgotten_events_start_id=1,
        forgotten_events_end_id=3,
        summary="in brief",
        summary_offset=1,
    )
    later = CondensationAction(
        id=9, forgotten_event_ids=(4, -7), summary="in other words", summary_offset=1
    )
    own = CondensationAction(
        id=12, forgotten_event_ids=(-11,), summary="# Digest of 3 events", summary_offset=1
    )
    assert section(told([made]), "Earlier summary") == [
        "(up to event 3; what was open then may be done) in brief"
    ]
    assert section(told([made, later, own]), "Earlier summary") == [
        "(up to event 4; what was open then may be done) in other words"
    ]


@pytest.mark.parametrize("summary", ["in brief", "a fact " * 13])
def test_an_earlier_summary_that_just_fits_stays_whole(summary: str):
    alone = told([as_summary(summary)])
    assert told([as_summary(summary)], len(alone)) == alone


@pytest.mark.parametrize("texts", [["in brief"], ["the newest", "a fact " * 13, "the oldest"]])
def test_earlier_summaries_that_fit_in_their_share_stay_whole(texts: list[str]):
    summaries = [CondensationSummary(id=-2 - n, content=text) for n, text in enumerate(texts)]
    alone = told(summaries)
    text = told([*summaries, *(message(f"w{n} " * 150, "agent") for n in range(30))], 800)
    assert text.endswith(alone[alone.index("## Earlier summary") :])


def test_no_earlier_summary_is_dropped_however_many_there_are():
    parts = [
        f"PART {n} begins\n\n" + f"- a step of part {n}\n" * 40 + f"PART {n} ends" for n in range(7)
    ]
    summaries = [CondensationSummary(id=n, content=text) for n, text in enumerate(parts)]
    busy = [
        event
        for n in range(300)
        for event in ran(n, f"python work_{n}/module_{n}.py --flag {n}", 0)
    ]
    text = told([*summaries, *busy], 8_000)
    assert len(text) <= 8_000
    earlier = section(text, "Earlier summary")
    assert [line[:13] for line in earlier] == [f"PART {n} begins" for n in range(7)]
    assert earlier[-1].endswith("PART 6 ends")
    assert {line[-1] for line in earlier[:-1]} == {"…"}


def test_the_users_asks_survive_many_digests():
    condenser = DigestCondenser(max_size=10, keep_first=1)
    view = viewed(message("the first of all"))
    asked = []
    for n in range(200):
        asked.append(f"please do number {n}")
        work = [] if n % 20 else [message(asked[-1])]
        view = view.then([*work, *pair(n, command=f"step {n}")])
        result = condenser.condense(view)
        if hasattr(result, "action"):
            view = after(view, result)
    said = "\n".join(str(event.content) for event in view if not isinstance(event, Action))
    assert [n for n in range(0, 200, 20) if f"please do number {n}" not in said] == []
    assert len(view) <= 12


# --- bounds ---


def test_a_digest_has_at_most_its_length_and_says_what_it_left_out():
    asks = [message(f"ask {n} " + "x" * 100) for n in range(20)]
    events = viewed(asks, [e for n in range(300) for e in ran(n, f"cmd {n}", 0)])
    for length in (500, 1_000, 3_000, 20_000):
        text = told(events.events, length)
        assert len(text) <= length
    small = told(events.events, 3_000)
    assert "ask 0" in small
    assert "ask 19" in small
    left_out, *rest = section(small, "Commands run")
    assert left_out == f"({300 - len(rest)} earlier left out)"
    assert rest[-1] == "`cmd 299` → exit 0: done"


def test_a_digest_of_the_least_length_is_not_made_shorter():
    text = digest(Message(source="user", content="x" * 214))
    assert (len(text), DigestCondenser().summarize([], None).shorter(text)) == (LENGTH_LEAST, None)


def test_what_a_short_digest_left_out_is_in_the_next_one():
    """A digest that had little room says nothing about what the next one can say."""
    commands = viewed(
        *[e for n in range(300) for e in ran(n, f"cmd {n}", 0)], ran(300, "new", 0)
    ).events
    first = Digest.of(commands[:-2])
    assert len(section(text_of(first, 500), "Commands run")) < 20
    left_out, *rest = section(text_of(first.plus(commands[-2:]), 3_000), "Commands run")
    assert left_out == f"({301 - len(rest)} earlier left out)"
    assert len(rest) > 60


@examples(200)
@given(histories, st.integers(500, 3_000), st.integers(0, 30))
def test_any_history_has_a_digest_that_is_bounded_and_the_same_however_it_is_folded(
    events, length, place
):
    text = told(events, length)
    assert len(text) <= length
    starts = [
        at for at in (place, 0) if not any(isinstance(event, Observation) for event in events[at:])
    ]
    for start in starts or [0]:  # a call is forgotten together with its result
        assert text_of(Digest.of(events[:start]).plus(events[start:]), length) == text


# --- the condenser ---


def test_the_condenser_needs_no_model_and_says_what_it_did():
    view = viewed(message("fix it"), [e for n in range(6) for e in ran(n, f"cmd {n}", 0)])
    result = DigestCondenser(max_size=10).condense(view)
    assert ids(after(view, result))[:2] == [0, -15]
    assert plan(result).metadata["condenser"] == "digest"
    assert "cmd 0" in plan(result).summary


def test_a_digest_makes_do_with_the_room_that_the_agent_has():
    """An agent with a small window works on, where a digest of the usual length would fill it."""
    condenser = DigestCondenser()
    view = viewed(SYSTEM, message("count as far as you can"))
    forgotten = 0
    for n in range(100):
        result = condenser.condense(view, Characters(2_000))
        while not isinstance(result, View):
            assert plan(result).metadata["tokens_after"] <= 1_800 * 3 / 4, (
                "half for head and tail, a quarter for it"
            )
            forgotten, view = forgotten + 1, after(view, result)
            result = condenser.condense(view, Characters(2_000))
        more = pair(n, command=f"step {n} {'x' * 80}")
        view = view.then(
            [replace(event, id=view.version + place) for place, event in enumerate(more)]
        )
    assert 5 < forgotten < 40
    assert "count as far as you can" in str(
        [event.content for event in view if event.id < 0 or event.id == 1]
    )


@pytest.mark.parametrize("result", [3_000, 4_400, 4_900, 6_000, 30_000])
@pytest.mark.parametrize("earlier", [0, 4, 60])
def test_the_newest_request_is_told_beside_results_that_have_no_room(earlier, result):
    """No model was shown them, so they stay; where they alone are over the limit, a shorter digest
    does not help.
    """
    asked = [
        (message(f"Now paint kite {n}. {'Mind the wind. ' * 20}"), message("painted", "agent"))
        for n in range(earlier)
    ]
    request = message("Which glue holds paper? " + "Think of the rain. " * 40)
    view = viewed(SYSTEM, *asked, request, call("read"), answer("x" * result))
    made = step(DigestCondenser(), view, Characters(6_000)).result
    shown = view if isinstance(made, View) else after(view, made)
    told = [event.content for event in shown if isinstance(event, Message | CondensationSummary)]
    assert "Which glue holds paper? Think of the rain." in str(told)
    fits = result <= 5_000
    assert isinstance(made, View) or fits or len(str(made.action.summary)) > 400, (
        "a part of the limit is for it"
    )
    assert not fits or Characters().token_sums(shown)[-1] <= 6_000 * 0.9


def test_a_long_text_is_no_reason_to_lose_the_rest():
    text = digest(message("x" * 100_000), messages(3), ran(1, "make", 0))
    assert len(text) <= LENGTH
    assert "`make` → exit 0" in text


def test_arguments_nested_without_end_are_a_call_like_any_other():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for arguments in ("[" * 100_000, {"a": deep}):
        view = viewed(
            message(),
            Action(tool="odd", arguments=arguments, call_id="c"),
            answer(call_id="c"),
            messages(10),
        )
        assert "odd " in plan(DigestCondenser(max_size=10).condense(view)).summary


def test_an_earlier_summary_without_a_word_takes_no_place():
    """Imported logs hold some."""
    blank, brief = CondensationSummary(content=" \n"), CondensationSummary(content="in brief\n")
    assert section(digest(blank, brief, blank), "Earlier summary") == ["in brief"]
    assert "Earlier summary" not in digest(blank)


# -- words
# --------------------------------------------------------------------------------------------------


ASKED, SAID, SHOWN = "Asked by the user", "Said by the agent", "Shown by the environment"


def user(text):
    return Message(source="user", content=text)


def environment(text):
    return Message(source="environment", content=text)


def rejected(text):
    return Observation(tool="Edit", call_id="c", is_error=True, content=REJECTION + text)


# -- whose words
# --------------------------------------------------------------------------------------------------


def test_the_environments_words_are_not_the_agents():
    output = (
        "src/kite.py:3: E501\n[File: /w/kite.py (20 lines total)]\n(Open file: /w/kite.py)\nbash-$"
    )
    text = digest(
        user("lint it"), Message(source="agent", content="Let me run it."), environment(output)
    )
    assert section(text, SAID) == ["Let me run it."]
    assert section(text, SHOWN) == ["src/kite.py:3: E501 [File: /w/kite.py (20 lines total)]"]


TAGGED = "<issue_description>it leaks</issue_description> mend <b>that</b>"
IDE = (
    "# Context from my IDE setup:\n\n## Open tabs:\n- kite.py\n\n## My request for Codex:\nfly it\n"
)
AGENTS = "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"


@pytest.mark.parametrize(
    "message, asked, shown",
    [
        (
            "<ide_opened_file>It is kite.py.</ide_opened_file>\nmend it",
            "mend it",
            ["ide_opened_file: It is kite.py."],
        ),
        (
            "mend it\n<system-reminder>\nBe brief.\n</system-reminder>",
            "mend it",
            ["system-reminder: Be brief."],
        ),
        (
            "<environment_context>\n<cwd>/w</cwd>\n</environment_context>",
            "",
            ["environment_context: <cwd>/w</cwd>"],
        ),
        (IDE, "fly it", ["the user's editor: # Context from my IDE setup: … - kite.py"]),
        (
            "<task>\nfly it\n</task>\n<environment_details>v</environment_details>",
            "fly it",
            ["environment_details: v"],
        ),
        ("say <task>it</task>", "say <task>it</task>", []),
        (AGENTS, "", ["INSTRUCTIONS: Use tabs."]),
        ("<local-command-stdout>Bye!</local-command-stdout>", "", ["local-command-stdout: Bye!"]),
        ("<bash-input>ls kites</bash-input>", "", ["the user ran: ls kites"]),
        ("[Request interrupted by user for tool use]", "", ["the user interrupted the agent"]),
        ("Solve it.\n(Open file: n/a)\n(Current directory: /w)\nbash-$", "Solve it.", []),
        (TAGGED, TAGGED, []),
        (
            "a < b and <ide_selection> is never closed",
            "a < b and <ide_selection> is never closed",
            [],
        ),
    ],
)
def test_a_users_message_is_what_the_user_asked_and_what_was_shown_with_it(message, asked, shown):
    assert of_user(message) == (asked, tuple(shown))
    text = digest(user(message))
    assert section(text, ASKED) == ([asked] if asked else [])
    assert section(text, SHOWN) == shown


@pytest.mark.parametrize(
    "name, arguments, asked",
    [("/review", "", "/review"), ("/plan", "the kite", "/plan the kite"), ("/clear", "", "")],
)
def test_a_command_for_the_agent_is_a_request_and_one_for_the_program_is_not(
    name, arguments, asked
):
    message = (
        f"<command-message>{name[1:]} is"
        f" running…</command-message>\n<command-name>{name}</command-name>"
    )
    if arguments:
        message += f"\n<command-args>{arguments}</command-args>"
    assert " ".join(of_user(message).asked.split()) == asked
    assert of_user(message).shown == ()


# -- what failed
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        "$",
        "bash-$",
        "bash-5.1$",
        ">>>",
        "root@7f3a:/w# ",
        "(venv) me@box ~/w $",
        "~/w %",
        "/w #",
        "PS C:\\w>",
    ],
)
def test_a_prompt_of_the_shell_is_no_error(prompt):
    text = digest(ran(1, "make kite", 2, f"kite.c:3: undefined wing\n{prompt}"))
    assert section(text, "Errors without a later success") == [
        "`make kite` → kite.c:3: undefined wing"
    ]
    assert "Errors" not in digest(ran(1, "grep kite x", 1, f"\n{prompt}\n"))


@pytest.mark.parametrize("line", ["50%", "cost: 5$", "a > b", "see me@example.com about 3%"])
def test_a_line_that_only_looks_like_a_prompt_is_kept(line):
    assert error_line(f"first\n{line}") == line


def test_the_line_that_names_the_error_is_told_and_not_the_hint_after_it():
    output = "Traceback:\nImportError: no module named kite\n\nhint: install it\nsee the manual"
    assert error_line(output) == "ImportError: no module named kite"
    assert (
        error_line("<tool_use_error>File does not exist.</tool_use_error>")
        == "File does not exist."
    )
    assert error_line(" \n") == ""


def test_an_output_in_json_is_read_for_its_exit_code_and_its_words():
    silent = json.dumps({"output": "", "metadata": {"exit_code": 1, "duration_seconds": 0.1}})
    failed = json.dumps({"output": "sed: no such file\n", "metadata": {"exit_code": 2}})
    text = digest(ran(1, "rg kite", content=silent), ran(2, "sed -i s/a/b/ x", content=failed))
    assert section(text, "Read, searched and printed") == ["`rg kite` → exit 1: no match"]
    assert section(text, "Commands run") == ["`sed -i s/a/b/ x` → exit 2: sed: no such file"]
    assert section(text, "Errors without a later success") == [
        "`sed -i s/a/b/ x` → sed: no such file"
    ]
    assert unwrapped('{"output": 5}') == ('{"output": 5}', None)
    assert unwrapped("{broken") == ("{broken", None)
    assert unwrapped('{"stdout": "a", "stderr": "b", "exit_code": 0}') == ("a\nb", 0)


def test_a_file_that_could_not_be_changed_was_not():
    def edit(number, path, **outcome):
        call_id = f"e{number}"
        arguments = {"command": "create", "path": path, "file_text": "x"}
        return [
            Action(tool="edit", arguments=arguments, call_id=call_id),
            Observation(tool="edit", content="it is outside", call_id=call_id, **outcome),
        ]

    text = digest(
        edit(1, "/kite.py", is_error=True),
        edit(2, "/w/kite.py"),
        edit(3, "/w/kite.py", is_error=True),
    )
    assert section(text, "Files changed") == ["/w/kite.py: written"]
    assert section(text, "Errors without a later success") == [
        "/kite.py → it is outside",
        "/w/kite.py → it is outside",
    ]
    refused = pair(
        4,
        "edit",
        "ERROR:\nNo replacement was performed.",
        path="/w/kite.py",
        old_str="x",
        new_str="y",
    )
    assert section(digest(edit(2, "/w/kite.py"), refused), "Files changed") == [
        "/w/kite.py: written"
    ]


def test_a_result_belongs_to_the_call_that_is_its_cause_where_calls_have_one_id():
    made = [
        Action(id=n, tool="run", arguments={"command": f"make {n}"}, call_id="run") for n in (1, 2)
    ]
    results = [
        Observation(
            id=2 + n, tool="run", content=f"error {n}", call_id="run", cause=n, is_error=True
        )
        for n in (2, 1)
    ]
    text = told([*made, *results], 6_000)
    assert sorted(section(text, "Errors without a later success")) == [
        "`make 1` → error 1",
        "`make 2` → error 2",
    ]


def test_a_document_within_a_command_is_counted_and_not_quoted():
    text = digest(ran(1, "cd /w\ncat > kite.py <<'EOF'\nimport wind\nfly()\nEOF", 0))
    assert section(text, "Commands run") == [
        "`cd /w cat > kite.py <<'EOF' … (3 lines)` → exit 0: done"
    ]


def test_an_output_is_told_by_its_first_and_its_last_line():
    assert gist_of_output("one\n\ntwo\nthree\n$ ") == "one … three"
    assert gist_of_output("one\ntwo") == "one two"
    assert gist_of_output("[Current working directory: /w]") == ""


# -- what was asked
# --------------------------------------------------------------------------------------------------


def test_the_newest_request_is_quoted_in_full_and_older_ones_still_say_what_was_asked():
    newest = "Now write the manual: " + "one chapter for each kind of kite. " * 60
    older = [user(f"{n}: " + "paint the kite in another colour " * 20) for n in range(8)]
    asked = section(told([*older, user(newest)], 6_000), ASKED)
    assert asked[-1] == newest.strip()
    assert [line[:2] for line in asked[:-1]] == [f"{n}:" for n in range(8)]
    assert min(map(len, asked[:-1])) >= 160


def test_a_request_is_left_out_rather_than_cut_to_a_few_words():
    requests = [user(f"{n}: " + "paint the kite in another colour " * 20) for n in range(60)]
    text = told([*requests, *ran(1, "make", 0)], 3_000)
    asked = section(text, ASKED)
    assert asked[0] == "(49 earlier left out)"
    assert asked[1].startswith("0: "), "what was asked first stays, with more words"
    assert len(asked[1]) > 2 * len(asked[2])
    assert asked[-1].endswith("colour"), "and the newest, in full"
    assert all(len(line) >= 160 for line in asked[1:])
    assert section(text, "Commands run") == ["`make` → exit 0: done"]


def test_a_newest_request_too_long_for_its_section_keeps_both_ends_and_says_how_much_is_missing():
    request = "Begin here. " + "detail " * 2_000 + "And never use glue."
    work = [e for n in range(300) for e in ran(n, f"make part_{n}", 0)]
    for others, least in ((), 5_500), (work, 1_500):
        (asked,) = section(told([user(request), *others], 6_000), ASKED)
        assert asked.startswith("Begin here. detail")
        assert asked.endswith("And never use glue.")
        assert "characters and more left out" in asked
        assert least < len(asked) < least + 500


REJECTION = (
    "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user"
    " said:\n"
)


def test_what_the_user_said_in_a_rejection_is_a_request():
    edit = Action(tool="Edit", arguments={"file_path": "/w/a.py"}, call_id="c")
    said = "never touch a.py,\nrename it on main instead"
    text = digest(user("mend it"), edit, rejected(said))
    refused = "refused by the user: a change of /w/a.py; the user said: "
    assert section(text, ASKED) == [
        "mend it",
        f"{refused}never touch a.py, rename it on main instead",
    ]
    assert "Files changed" not in text
    assert "Errors without a later success" not in text
    quoted = Observation(tool="Read", call_id="c", content=REJECTION + said)
    assert section(digest(user("mend it"), edit, quoted), ASKED) == ["mend it"], (
        "a file may quote it"
    )


@pytest.mark.parametrize(
    "text, orders",
    [
        ("Mend it. Never touch a.py! Is that so?", ["Never touch a.py!"]),
        ("use tabs from now on\nand don’t push", ["use tabs from now on", "and don’t push"]),
        ("Why must it always fail? It never did. I don't know.", []),
        ("Mend it:\n" + "if a: b.must(never) { 'x' }\n" * 30, []),
        ("不要碰 a.py", ["不要碰 a.py"]),
        ("whatever works, nevertheless", []),
        ("I don't want the old wing.", ["I don't want the old wing."]),
        ("let's keep the red tail", ["let's keep the red tail"]),
        ("We want it light (avoid glue if you can)", ["We want it light (avoid glue if you can)"]),
        ("While I don't have the glue, stop. I want a tail. My kite, I don't remember which.", []),
    ],
)
def test_what_holds_for_good_is_an_order(text, orders):
    assert orders_in(text) == orders


def test_an_order_is_never_lost_and_stands_once():
    """Whatever was asked after it, also if it was said in a rejection."""
    order = user("Mend it. " + "Mind the wind. " * 100 + "Never push to main.")
    later = [user(f"{n}: " + "paint the kite in another colour " * 20) for n in range(60)]
    text = told([order, rejected("always ask first"), *later], 3_000)
    assert section(text, "Standing orders") == ["Never push to main.", "always ask first"]
    short = told([user("Mend it. Never push to main.")])
    assert "Standing orders" not in short, "the request shows it"


# -- what the agent did
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrote, said, command",
    [
        ("Look.\n<command>\nmake kite\n</command>", ["Look."], "make kite"),
        ("Look.\n```\nmake kite\n```", ["Look."], "make kite"),
        ("<command>\nedit 1:3\nfly()\nend_of_edit\n</command>", [], "edit 1:3 … (2 lines)"),
        ("```\nmake\n```\nor\n```\nmake kite\n```", ["``` make ``` or"], "make kite"),
        ("```python\nfly()\n```", ["```python fly() ```"], None),
        ("No <command> here.", ["No <command> here."], None),
    ],
)
def test_a_command_in_the_agents_words_is_a_call_where_the_environment_answers(
    wrote, said, command
):
    agent = Message(id=1, source="agent", content=wrote)
    text = digest(agent, environment("It flies."))
    assert section(text, SAID) == said
    assert section(text, "Commands run") == ([f"`{command}` → It flies."] if command else [])
    assert section(text, SHOWN) == ([] if command else ["It flies."])
    assert "Commands run" not in digest(agent, user("It flies.")), "a person answered"


@pytest.mark.parametrize(
    "command, reads",
    [
        ("sed -n 1,200p a.ts", True),
        ("cd /w && rg -n 'a|b > c' src 2>/dev/null | head -5", True),
        ("git diff; ls", True),
        ("TMPDIR=/w rg kite src", True),
        ("sed -i s/a/b/ a.ts", False),
        ("cat a > b", False),
        ("find . -name x -delete", False),
        ("cat a && rm a", False),
        ("catalog", False),
    ],
)
def test_a_command_that_only_reads_can_be_run_again(command, reads):
    assert only_reads(command) == reads
    assert (
        section(
            digest(ran(1, command, 0)), "Read, searched and printed" if reads else "Commands run"
        )
        != []
    )


def test_names_are_paths_and_identifiers_and_no_numbers_styles_or_frames():
    text = "see /w/src/a.py:12, kiteFly, MAX_SIZE, std::vec::Vec, https://kite.dev:80/x?y=1 and "
    text += "C:\\w\\proj\\alpha_1.py, D:/x/b.py"
    names = ["/w/src/a.py", "kiteFly", "MAX_SIZE", "std::vec::Vec", "https://kite.dev:80/x?y=1"]
    assert [name for name, _ in names_in(text)] == [*names, "C:\\w\\proj\\alpha_1.py", "D:/x/b.py"]
    assert [name for name, _ in names_in('{"text": "one\\nPre-order_two\\tlast_one"}')] == [
        "Pre-order_two",
        "last_one",
    ]
    for none in (
        "0.379s 12:34:56 2025-09-25 </command-name> however a.py " + "x1" * 40,
        "mt-4 grid-cols-12 Math.floor 123456789",
    ):
        assert [*names_in(none)] == []
    assert [*names_in("    at Module._compile (node:internal/modules/cjs/loader:1404:14)")] == []
