"""A digest is a fold over the forgotten events of the log: a short one takes nothing from the next,
the work of a condensation is that of the new events, and a fold that goes on is the fold from the
start.
"""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

import foldlog
from foldlog.condensers.strategies.digest import Digest, DigestCondenser, digest_of, layout
from foldlog.condensers.strategies.digest.commands import (
    FileChange,
    changes_by,
    covers,
    kinds_of_check,
)
from foldlog.condensers.strategies.digest.facts import deed_of
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.eventstore.events import Action, CondensationSummary, Message, Observation
from foldlog.projections import View
from tests.condensers.made import after, answer, call, message, pair, viewed
from tests.condensers.scripted import Characters

LENGTH = 6_000
UNSEEN = "(files that programs wrote are here only if an output names them)"
READ, RAN = "Read, searched and printed", "Commands run"
UNCHECKED = "since the last change, of {}: no test, lint or build command"


def told(*events, length=LENGTH):
    return text_of(Digest.of(viewed(*events).events), length)


def section(text, heading):
    found = text.partition(f"## {heading}\n")[2].partition("\n\n")[0].splitlines()
    return [re.sub(r" \[\d+\]$", "", line[2:]) for line in found]


def files_known(text):
    lines = section(text, "Files changed")
    omitted = sum(
        int(found[1])
        for line in lines
        if (found := re.fullmatch(r"\((\d+) earlier left out\)", line))
    )
    return len([line for line in lines if not line.endswith(("left out)", UNSEEN))]) + omitted


def edit(number, path=None):
    return pair(
        number,
        "Edit",
        path=path or f"/w/part_{number}.py",
        old_string="a = 1",
        new_string=f"a = {number}",
    )


def ran(number, command, exit_code, content="done"):
    extras = {"metadata": {"exit_code": exit_code}}
    return [
        call("bash", f"r{number}", command=command),
        answer(content, f"r{number}", extras=extras),
    ]


# --- the fold ---


def summaries(view):
    return [event.content for event in view if isinstance(event, CondensationSummary)]


def test_a_digest_that_had_no_room_takes_nothing_from_the_next_one():
    condenser, known, lengths = DigestCondenser(), [], []
    view = viewed(message("mend them all"))
    for number in range(40):
        large = "x" * (1_700 if number == 20 else 60)
        work = [*edit(number)[:1], replace(edit(number)[1], content=large)]
        view = view.then(
            [replace(event, id=view.version + place) for place, event in enumerate(work)]
        )
        result = condenser.condense(view, Characters(2_500))
        while not isinstance(result, View):
            view = after(view, result)
            (text,) = summaries(view)
            known.append(files_known(text))
            lengths.append(len(text))
            result = condenser.condense(view, Characters(2_500))
    assert known == sorted(known)
    assert known[-1] >= 25
    assert min(lengths) < max(lengths) / 2, f"one of them had no room: {lengths}"


def test_the_work_of_a_condensation_is_that_of_the_new_events(monkeypatch):
    folded = []
    take = Digest._take
    monkeypatch.setattr(
        Digest, "_take", lambda digest, event: (folded.append(event.id), take(digest, event))
    )
    with foldlog.open("memory:", condenser=DigestCondenser(max_size=20)) as histories:
        history = histories["c1"]
        history.append(message("mend them all"))
        for number in range(200):
            history.append(edit(number))
            history.prepare()
        version = history.version()
        last = summaries(history.view())[-1]
        forgotten = set(range(version)) - {event.id for event in history.view()}
    assert len(folded) <= version
    assert len(set(folded)) == len(folded), "no event is folded twice"
    assert files_known(last) >= 180
    assert len(forgotten) > 380


def test_the_work_of_a_text_is_that_of_the_lines_that_may_fit(monkeypatch):
    cut = []
    monkeypatch.setattr(layout, "clipped", lambda line, most: cut.append(line) or line[:most])
    counts = []
    for commands in (200, 400):
        digest = Digest.of(
            viewed(*(ran(number, f"make part_{number}", 0) for number in range(commands))).events
        )
        cut.clear()
        assert f"make part_{commands - 1}" in text_of(digest, 1_000)
        counts.append(len(cut))
    assert counts[0] == counts[1] > 0


def test_a_fold_that_goes_on_is_the_fold_from_the_start():
    with foldlog.open("memory:", condenser=DigestCondenser(max_size=16)) as histories:
        history = histories["c1"]
        for number in range(60):
            history.append(
                [message(f"do {number}"), *edit(number)] if number % 7 == 0 else edit(number)
            )
            view = history.prepare()
            if number == 30:
                history.retract(history.version() - 6)
            going = view[1 : view.cut_points[len(view.cut_points) // 2]]
            if any(event.id >= 0 for event in going):
                fresh = View.from_events(history.events())
                kept = {event.id for event in history.view()}
                assert {event.id for event in fresh} == kept
                ids = {event.id for event in going} & kept
                both = [
                    digest_of(each, [event for event in each if event.id in ids])
                    for each in (history.view(), fresh)
                ]
                assert text_of(both[0], LENGTH) == text_of(both[1], LENGTH)


def test_a_redacted_event_is_in_no_later_digest():
    with foldlog.open("memory:", condenser=DigestCondenser(max_size=12)) as histories:
        history = histories["c1"]
        history.append(message("never tell anybody of the_secret_kite, please"))
        for number in range(12):
            history.append(edit(number))
            history.prepare()
        assert "the_secret_kite" in str(
            summaries(history.view()) + [event.content for event in history.view() if event.id == 0]
        )
        history.redact(0, reason="asked for")
        for number in range(12, 40):
            history.append(edit(number))
            history.prepare()
        assert "the_secret_kite" not in str(summaries(history.view())[-1:])


# --- files ---

PATCH = (
    "*** Begin Patch\n*** Update File: src/a.py\n@@ def f():\n-x\n+y = fly(kite)\n"
    "*** Add File: b.py\n+new = 1\n*** End Patch"
)


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ["apply_patch", PATCH]},
        {"command": ["bash", "-lc", f"cd /w && apply_patch <<'EOF'\n{PATCH}\nEOF"]},
        {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF"},
        {"input": PATCH},
        {"input": PATCH.replace("\n", "\\n")},
    ],
)
def test_a_patch_names_its_files_wherever_it_stands(arguments):
    text = told(pair(1, "shell", **arguments))
    assert section(text, "Files changed") == [
        "src/a.py: edited; last: y = fly(kite)",
        "b.py: created; last: new = 1",
    ]
    assert "Commands run" not in text


def test_a_patch_moves_and_deletes_files():
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n+xyz = 10\n*** Delete File:"
        " c.py\n*** End Patch"
    )
    deed = deed_of("apply_patch", {"input": patch})
    assert deed.changes == (
        FileChange("a.py", "moved to b.py"),
        FileChange("b.py", "moved from a.py", "xyz = 10"),
        FileChange("c.py", "deleted"),
    )


@pytest.mark.parametrize(
    "command, files",
    [
        ("cat > a.py <<'EOF'\nimport kite\nEOF", {"a.py": "written"}),
        ("cd /w/x && echo one >> notes.txt 2>/dev/null", {"/w/x/notes.txt": "written"}),
        ("make 2>&1 | tee out.log", {"out.log": "written"}),
        ("sed -i '' 's/a/b/' x.go y.go", {"x.go": "edited by sed", "y.go": "edited by sed"}),
        (
            "git mv a.py lib/ && git rm old.py",
            {"a.py": "moved to lib/a.py", "lib/a.py": "moved from a.py", "old.py": "deleted"},
        ),
        ("cp a b; rm -f c; touch d", {"b": "copied from a", "c": "deleted", "d": "created"}),
        ("echo hi > C:\\w\\a.txt", {"C:\\w\\a.txt": "written"}),
        ("bash -lc 'echo 1 > a.txt'", {}),
        (
            "git checkout main -- a.py; git restore b.py",
            {"a.py": "restored by git", "b.py": "restored by git"},
        ),
        ("grep '>' a.py && awk '$1 > 2' b.txt", {}),
        ("echo 'it is > open", {}),
    ],
)
def test_a_command_changes_the_files_that_its_words_name(command, files):
    assert {change.path: change.deed for change in changes_by(command)} == files


@pytest.mark.parametrize(
    "command", ["rm -f /w/part_*.py", "rm -r /w", "cd /w; rm part_1.py part_2.py"]
)
def test_files_that_a_command_deletes_by_a_pattern_or_with_their_directory_are_deleted(command):
    text = told(edit(1), edit(2), edit(3, "/v/part_3.py"), ran(4, command, 0, ""))
    files = section(text, "Files changed")
    assert "/v/part_3.py: edited" in files
    assert {"/w/part_1.py: edited, deleted", "/w/part_2.py: edited, deleted"} <= {*files}


def test_a_notebook_and_an_editor_of_many_places_change_files():
    text = told(
        pair(1, "NotebookEdit", notebook_path="C:\\w\\kite.ipynb", new_source="fly(kite)"),
        pair(
            2,
            "MultiEdit",
            file_path="a.py",
            edits=[{"old_string": "x = 1", "new_string": "x = 1\nwind = 2"}],
        ),
        pair(3, "Edit", file_path="a.py", old_string="wind = 2", new_string="wind = 3"),
        ran(4, "pytest -q", 0),
        pair(5, "Write", file_path="b.py", contents="rain = 1"),
    )
    assert section(text, "Files changed") == [
        "C:\\w\\kite.ipynb: edited; last: fly(kite)",
        "a.py: edited 2 times; last: wind = 2 -> wind = 3",
        "b.py: written; last: rain = 1",
        UNSEEN,
    ]
    assert section(text, "Built so far") == [
        "last test: `pytest -q` → exit 0: done",
        UNCHECKED.format("b.py"),
    ]


def test_a_file_says_how_many_times_each_thing_was_done_to_it_the_newest_last():
    written = pair(1, "Write", file_path="/w/part_2.py", contents="b = 1")
    text = told(
        written,
        edit(2),
        edit(3, "/w/part_2.py"),
        ran(4, "rm /w/part_2.py; touch /w/part_2.py", 0, ""),
    )
    (line,) = section(text, "Files changed")
    assert line == "/w/part_2.py: written, edited 2 times, deleted, created"
    again = told(written, edit(2), pair(3, "Write", file_path="/w/part_2.py", contents="kite = 1"))
    assert section(again, "Files changed") == [
        "/w/part_2.py: edited, written 2 times; last: kite = 1"
    ]


def swap(number, old, new, path="a.py"):
    return pair(number, "Edit", file_path=path, old_string=old, new_string=new)


def test_the_line_of_a_file_is_one_of_its_last_change():
    text = told(swap(1, "wind = 1", "wind = 2"), swap(2, "import kite\nimport rope", "import kite"))
    assert section(text, "Files changed") == ["a.py: edited 2 times; last: removed import rope"]
    assert "; last" not in told(swap(1, "wind = 1", "wind = 2"), ran(2, "touch a.py", 0, ""))


def test_an_edit_that_takes_back_another_names_it():
    there, back = ("wind = 1", "wind = 2"), ("wind = 2", "wind = 1")
    text = told(swap(1, *there), swap(2, "rain = 1", "rain = 2"), swap(3, *back))
    assert re.search(r"a\.py: edited 3 times; last: takes back \[0\] \[4\]", text)
    other = told(swap(1, *there, path="b.py"), swap(3, *back))
    assert "a.py: edited; last: wind = 2 -> wind = 1" in section(other, "Files changed")


def test_an_edit_shows_the_first_line_that_is_gone_and_what_stands_there_now():
    old = "yield from (\n    join(root, file)\n    for file in files\n)"
    new = "for file in files:\n    if not is_ignored(file):\n        yield join(root, file)"
    became = "yield from ( -> for file in files: if not is_ignored(file): yield join(root, file)"
    assert f"a.py: edited; last: {became}" in section(told(swap(1, old, new)), "Files changed")
    patch = f"*** Begin Patch\n*** Update File: a.py\n@@\n{minus(old, '-')}\n{minus(new, '+')}\n"
    patched = told(pair(1, "apply_patch", input=f"{patch}*** End Patch"))
    assert section(patched, "Files changed") == [f"a.py: edited; last: {became}"]


def minus(text, sign):
    return "\n".join(sign + line for line in text.splitlines())


def test_scratch_files_stand_after_the_product_and_are_left_out_before_it():
    def written(number, path):
        return pair(number, "Write", file_path=path, contents=f"kite = {number}")

    scratch = [written(n, f"/w/test_wind_{n}.py") for n in range(2, 40)]
    events = [swap(1, "rain = 1", "rain = 2", "/w/kite.py"), written(1, "/w/tests/test_kite.py")]
    files = section(told(*events, *scratch, length=1_500), "Files changed")
    product = ["/w/kite.py: edited; last: rain = 1 -> rain = 2", "/w/tests/test_kite.py: written"]
    assert [line.partition("; last: kite")[0] for line in files[1:3]] == product
    assert files[0].endswith("earlier left out)")
    assert files[-1].startswith("/w/test_wind_39.py")


@pytest.mark.parametrize(
    "command, output, path",
    [
        ("python manage.py migrate", "  migrations/0001_initial.py\n    - Create model Kite", None),
        ("git commit -m kite", " create mode 100644 src/kite.py", "src/kite.py"),
        ("make kite", "Created file: build/kite.js", "build/kite.js"),
        ("make kite", "Saved the chart to 'kite.png'.", "kite.png"),
        ("make kite", "Created 3 kites.", ""),
        ("cat notes", "Created file: build/kite.js", ""),
    ],
)
def test_a_file_that_an_output_names_as_written_is_changed(command, output, path):
    path = "migrations/0001_initial.py" if path is None else path
    files = section(told(ran(1, command, 0, output)), "Files changed")
    assert files == ([f"{path}: written by `{command}`", UNSEEN] if path else [])


def test_a_line_that_is_in_nearly_all_results_is_no_error_and_no_name():
    noise = "/opt/brew/shell_env.sh: line 18: /bin/ps: Operation not permitted"
    before = [ran(n, f"make part_{n}", 0, f"{noise}\nok") for n in range(1, 6)]
    cause = 'rg: the literal "n" is not allowed'
    text = told(
        *before,
        ran(6, "rg kite > a", 1, noise),
        ran(7, "rg wind > b", 2, f"{cause}\n{noise}\nConsider the flag -U."),
        ran(8, "make rain", 2, noise),
    )
    assert section(text, "Errors without a later success") == [
        f"`rg wind > b` → {cause}",
        f"`make rain` → {noise}",
    ], "the only line is better than none"
    assert "`rg kite > a` → exit 1: no match" in section(text, "Commands run")
    assert text.count("shell_env.sh: line 18") == 3, "of the newest call alone"


def test_an_edit_of_the_open_file_is_no_test():
    text = told(
        message("Try.\n<command>\nedit 1:9\npytest -q > out.txt\nend_of_edit\n</command>", "agent"),
        message("[File: /w/a.py (9 lines total)]\nFile updated.", "environment"),
    )
    assert "last test" not in text
    assert section(text, "Files changed") == ["/w/a.py: edited; last, applied: pytest -q > out.txt"]


def test_a_worked_example_before_the_request_is_nothing_that_was_done():
    task = "We are now mending the following fault within our repository of kites: "
    example = [
        message(f"{task}the tail is short", "environment"),
        message("Longer.\n<command>\nrm /w/tail.py\n</command>", "agent"),
        message("gone\n[File: /w/tail.py (1 lines total)]\nFile updated.", "environment"),
        message("Now that we have mended the tail, submit.", "agent"),
    ]
    text = told(*example, message(f"{task}the wind is weak"), message("I look.", "agent"))
    assert section(text, "Files changed") == ["/w/tail.py: in the example before the task"]
    assert text.count("tail") == 1
    first = told(*example, message("and the wind?"), message("I look.", "agent"))
    assert section(first, "Reported by the agent"), "an answer that begins otherwise is no task"


# --- what the user refused, allowed and answered ---

REFUSAL = "The user doesn't want to proceed with this tool use. The tool use was rejected."
SAID = " To tell you how to proceed, the user said:\nfirst mend the kite"
PLAN = "# Plan: Paint the kite\n\n1. Edit kite.py"
ORDERS, ASKED = "Standing orders", "Asked by the user"
PLAN_MODE = "plan mode: write and edit nothing but the plan until the user approves it"


def refused(number, tool, content=REFUSAL, **arguments):
    return [call(tool, f"x{number}", **arguments), answer(content, f"x{number}", is_error=True)]


def test_a_refused_plan_is_a_refusal_and_nothing_that_was_done():
    text = told(message("paint it"), refused(1, "ExitPlanMode", REFUSAL + SAID, plan=PLAN))
    refusal = "refused by the user: plan: Paint the kite; the user said: first mend the kite"
    assert section(text, ASKED) == ["paint it", refusal]
    assert "Other calls" not in text


def test_a_refusal_without_words_is_an_order_until_the_call_succeeds():
    again = [*refused(1, "ExitPlanMode", plan=PLAN), *refused(2, "bash", command="git push")]
    text = told(message("paint it"), again)
    assert section(text, ORDERS) == [
        "refused by the user: plan: Paint the kite",
        "refused by the user: `git push`",
    ]
    assert "Commands run" not in text
    allowed = told(message("paint it"), again, ran(3, "git push", 0))
    assert section(allowed, ORDERS) == ["refused by the user: plan: Paint the kite"]


def test_a_rejection_of_openhands_is_a_refusal_and_that_of_a_hook_an_error():
    def rejection(source, reason="no glue"):
        return [
            call("edit", "c1", path="/w/a.py", new_str="glue"),
            answer(reason, "c1", is_error=True, extras=source),
        ]

    by_user, by_hook = {"rejection_source": "user"}, {"rejection_source": "hook"}
    text = told(rejection(by_user))
    assert section(text, ASKED) == [
        "refused by the user: a change of /w/a.py; the user said: no glue"
    ]
    assert section(told(rejection(by_user, "User rejected the action")), ORDERS) == [
        "refused by the user: a change of /w/a.py"
    ]
    assert section(told(rejection(by_hook)), "Errors without a later success") == [
        "/w/a.py → no glue"
    ]
    assert "Files changed" not in text


ENTERED = "Entered plan mode. DO NOT write or edit any files yet."
REMINDED = (
    "<system-reminder>\nPlan mode is active. The user does not want you to execute"
    " yet.\n</system-reminder>"
)
APPROVED = "User has approved your plan. You can now start coding."


@pytest.mark.parametrize(
    "begin", [pair(1, "EnterPlanMode", ENTERED), [message(f"paint it\n{REMINDED}")]]
)
def test_plan_mode_is_an_order_while_it_holds(begin):
    written = pair(2, "Write", file_path="/h/plans/kite.md", contents=PLAN)
    planning = [*begin, *written, *refused(3, "ExitPlanMode", REFUSAL + SAID, plan=PLAN)]
    assert section(told(planning), ORDERS) == [PLAN_MODE]
    assert ORDERS not in told(planning, pair(4, "ExitPlanMode", APPROVED, plan=PLAN))
    assert ORDERS not in told(planning, edit(4)), "the user let the agent edit"


def test_answers_to_the_agents_questions_are_the_users_words():
    questions = [{"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}]
    said = 'User has answered your questions: "Which colour?"="red". You can now continue.'
    text = told(message("paint it"), pair(1, "AskUserQuestion", said, questions=questions))
    assert section(text, ASKED) == ["paint it", '"Which colour?"="red"']
    assert "Other calls" not in text


STATUS = """On branch main
Changes to be committed:
  (use "git restore --staged <file>..." to unstage)
\tmodified:   src/kite.py
\tnew file:   src/rope.py

Changes not staged for commit:
  (use "git add <file>..." to update what will be committed)
\tmodified:   .settings.json

Untracked files:
\tnotes.txt
"""


@pytest.mark.parametrize("command", ["git status", "git -C /w status 2>&1"])
def test_the_files_of_git_status_keep_their_headings_until_a_commit(command):
    listed = (
        f"last git status: `{command}` → Changes to be committed: modified: src/kite.py, new file:"
        " src/rope.py; Changes not staged: modified: .settings.json; Untracked files: notes.txt"
    )
    text = told(ran(1, command, 0, STATUS))
    assert section(text, "Built so far") == [listed]
    later = STATUS.replace("notes.txt", "plan.txt")
    assert section(
        told(ran(1, command, 0, STATUS), ran(2, "git status", 0, later)), "Built so far"
    ) == [listed.replace(command, "git status").replace("notes.txt", "plan.txt")]
    committed = told(ran(1, command, 0, STATUS), ran(2, "git commit -m x", 0, "[main 1a2b3c4] x"))
    assert section(committed, "Built so far") == ["committed: x (1a2b3c4 on main)"]


# --- what was built ---


def test_what_was_built_is_told_by_commits_tasks_and_the_words_before_the_next_request():
    text = told(
        message("fly the kite"),
        pair(1, "TodoWrite", todos=[{"content": "fold it", "status": "in_progress"}]),
        edit(2),
        pair(3, "TodoWrite", todos=[{"content": "fold it", "status": "completed"}]),
        ran(
            4,
            "git add -A && git commit -m 'kite: fold it'",
            0,
            "[main 0123abc] kite: fold it\n 1 file changed",
        ),
        ran(5, "git commit -m 'kite: paint it' | tail -1", 0, "nothing to commit"),
        message("The kite is folded, and it flies well.", "agent"),
        message("now paint it"),
        message("I will.", "agent"),
    )
    assert section(text, "Built so far") == [
        "task done: fold it",
        "committed: kite: fold it (0123abc on main)",
        UNCHECKED.format("part_2.py"),
    ]
    assert section(text, "Reported by the agent") == [
        "the agent said: The kite is folded, and it flies well."
    ]
    assert section(text, "Said by the agent") == ["I will."]


# --- errors ---


@pytest.mark.parametrize(
    "narrow, wide, is_cured",
    [
        ("go test -run A ./kite", "go test -run 'A.*' ./kite", True),
        ("go test -run A ./kite", "go test ./...", True),
        ("pytest tests/test_a.py::test_b -q", "cd /w && pytest tests/test_a.py", True),
        ("npm test -- kite 2>&1 | tail -5", "npm test", True),
        ("git merge kite --no-edit", "git add -A && git commit --no-edit", True),
        ("go test ./...", "go test ./kite", False),
        ("pytest tests/test_a.py", "pytest tests/test_b.py", False),
        ("make kite", "ls", False),
    ],
)
def test_an_error_is_open_until_the_same_or_a_wider_command_succeeds(narrow, wide, is_cured):
    assert covers(wide, narrow) == is_cured
    text = told(ran(1, narrow, 1, "E  torn"), ran(2, wide, 0))
    assert ("Errors without a later success" not in text) == is_cured


def test_an_error_is_closed_where_its_file_is_written_anew_and_a_search_without_a_result_is_none():
    failed = ran(1, "python kite.py", 1, "kite.py:3: NameError: wind")
    assert "Errors without a later success" in told(failed)
    for path, is_closed in (("/w/kite.py", True), ("/w/rain.py", False)):
        text = told(failed, pair(2, "Write", file_path=path, content="wind = 1"))
        assert ("Errors without a later success" not in text) == is_closed
    assert "Errors without a later success" not in told(failed, ran(3, "rm -f k*.py", 0))
    missing = [
        call("Read", "r", file_path="/w/no.py"),
        Observation(content="no such file", call_id="r", is_error=True),
    ]
    assert "Errors without a later success" not in told(missing)


# --- what was asked ---


def test_a_pasted_text_is_one_line_with_its_length():
    log = "\n".join(
        f"2026-01-0{n % 9} 12:00:{n:02} ERROR kite[{n}]: never=1 {{x: {n}}}" for n in range(20)
    )
    text = told(message(f"It fails like this:\n{log}\nPlease mend the kite for me."))
    (asked,) = section(text, "Asked by the user")
    assert asked.startswith("It fails like this: (pasted text of ")
    assert asked.endswith("Please mend the kite for me.")
    assert "Standing orders" not in text
    listed = "Do this:\n" + "\n".join(
        f"- paint the kite in colour {n} and let it fly" for n in range(20)
    )
    assert section(told(message(listed)), "Asked by the user") == [" ".join(listed.split())]


def test_commands_that_check_are_those_that_test_or_build():
    for command in (
        "go test ./...",
        "npm run lint",
        "cargo build",
        "mise run test:ci",
        "./gradlew test",
        "python -m pytest",
        "uv run -- python tests/runtests.py",
        "./run_tests.sh",
    ):
        assert kinds_of_check(command), command
    for command in (
        "cd /w/test-kite",
        "echo test",
        "git commit -m 'test it'",
        "cat test",
        "ls build",
    ):
        assert not kinds_of_check(command), command


def test_the_words_of_a_call_by_the_user_are_no_request():
    action = Action(tool="run", arguments={"command": "make"}, source="user", call_id="u")
    assert "Asked by the user" not in told(
        action, answer("ok", "u"), Message(source="agent", content="done")
    )


# --- how a call ended, and what was checked ---


def test_a_short_list_in_a_result_is_whole_and_a_longer_one_says_how_many_lines_it_has():
    files = [f"src/kite_{number}.py" for number in range(7)]
    edits = [edit(number, path) for number, path in enumerate(files[:3])]
    command = "git diff --name-only"
    for length in (LENGTH, 700):
        text = told(*edits, ran(9, command, 0, "\n".join(files[:6])), length=length)
        assert section(text, READ) == [f"`{command}`: {' | '.join(files[:6])}"]
    text = told(*edits, ran(9, command, 0, "\n".join(files)))
    assert section(text, READ) == [f"`{command}` (7 lines): {' | '.join(files[3:])}"]
    pulled = "Updating 1..2\nFast-forward\n kite.py | 2 +-"
    assert section(told(ran(1, "git pull", 0, pulled)), RAN) == [
        "`git pull` → exit 0: Updating 1..2 | Fast-forward | kite.py | 2 +-"
    ]
    line = "the kite_tail is long: " * 20
    for output, shown in (
        ("/w/kites", "`pwd`: /w/kites"),
        (line, "`pwd`: …is long: the kite_tail"),
    ):
        assert section(told(ran(1, "pwd", 0, output)), READ)[0].startswith(shown)
    viewed_file = pair(1, "Read", "tail_a = 1\ntail_b = 2", file_path="/w/a.py")
    assert section(told(viewed_file), READ) == ["/w/a.py: tail_a = 1 | tail_b = 2"]


def test_a_merge_that_failed_names_the_files_in_conflict():
    files = [f"src/kite_{number}.py" for number in range(6)]
    merged = "".join(
        f"Auto-merging {file}\nCONFLICT (content): Merge conflict in {file}\n" for file in files
    )
    output = f"Auto-merging src/wind.py\n{merged}Automatic merge failed; fix conflicts."
    conflicts = f"conflicts in 6 files: {', '.join(files)}"
    text = told(ran(1, "git merge kites", 1, output))
    assert section(text, "Errors without a later success") == [f"`git merge kites` → {conflicts}"]
    assert "wind.py" not in text
    piped = told(ran(1, "git merge kites | tail -20", 0, output))
    assert conflicts in section(piped, "Errors without a later success")[0], (
        "whatever the pipe says"
    )
    failed = told(ran(1, "git merge kites | tail; rm a.py", 0, output))
    assert section(failed, "Files changed")[0] == "a.py: deleted by a command that failed"
    log = "CONFLICT (content): Merge conflict in kite\nok"
    read = told(ran(1, "cat merge.log", 0, log))
    assert section(read, READ) == [f"`cat merge.log`: {log.replace(chr(10), ' | ')}"]


@pytest.mark.parametrize(
    "commands, since",
    [
        (["ruff check"], "no test; lint `ruff check` → exit 0: done"),
        (
            ["pytest -q", "ruff check"],
            "test `pytest -q` → exit 0: done [3]; lint `ruff check` → exit 0: done",
        ),
        (["npm test && npm run lint"], "test and lint `npm test && npm run lint` → exit 0: done"),
        (["pytest -q > out.txt"], "no lint; test `pytest -q > out.txt` → exit 0: done"),
        (["make all"], "check `make all` → exit 0: done"),
        (["python fly.py"], "no test, lint or build command"),
    ],
)
def test_what_was_run_since_the_last_change_stands_by_kind_at_the_end_of_what_was_built(
    commands, since
):
    runs = [ran(number, command, 0) for number, command in enumerate(commands, start=1)]
    events = [edit(0, "/w/kite.py"), *runs]
    *_, line = section(told(*events, length=900), "Built so far")
    name = "out.txt" if ">" in commands[0] else "kite.py"
    assert sorted(line.partition(": ")[2].split("; ")) == sorted(since.split("; "))
    assert line.startswith(f"since the last change, of {name}: ")
    assert "last test" not in told(*events)


def test_a_check_before_the_last_change_is_the_last_of_its_kind():
    text = told(ran(1, "go test ./...", 0, "ok"), edit(1, "/w/a.go"), ran(2, "go vet ./...", 0))
    assert section(text, "Built so far") == [
        "last test: `go test ./...` → exit 0: ok",
        "since the last change, of a.go: no test; lint `go vet ./...` → exit 0: done",
    ]


def test_an_action_stands_once():
    """A command that only changes files stands with them, and a task that is done with the work."""
    text = told(edit(1), ran(2, "cd /w && rm part_1.py && mkdir lib", 0, ""))
    assert section(text, "Files changed")[0] == "/w/part_1.py: edited, deleted"
    assert "Commands run" not in text
    for command, output in (("rm a.py && ./fly", ""), ("mv a.py b.py", "moved"), ("rm -f", "")):
        assert len(section(told(ran(1, command, 0, output)), RAN)) == 1
    assert len(section(told(ran(1, "rm a.py", 1, "")), RAN)) == 1, "it failed"


def test_what_the_agent_reported_is_not_repeated_among_what_it_said():
    before = "Now the tail: it is too short, as you say. " * 20
    text = told(
        message("fold it"),
        edit(1),
        message("The kite is folded, and it flies well.", "agent"),
        message("the tail is short"),
        message(before, "agent"),
        edit(2),
        message("Then the string.", "agent"),
    )
    assert text.count(before.strip()) == 1, "the whole of it"
    assert section(text, "Reported by the agent")[-1].endswith(before.strip())
    assert section(text, "Said by the agent") == ["Then the string."]


@pytest.mark.parametrize(
    "stage, files",
    [
        ("git add -A && git commit -m x", ["/w/a/kite.py", "/w/b/wind.py"]),
        ("git commit -am x", ["/w/a/kite.py", "/w/b/wind.py"]),
        ("git add a/kite.py && git commit -m x", ["/w/a/kite.py"]),
        ("git add b/ && git commit -F - <<'EOF'\ngit add -A\nEOF", ["/w/b/wind.py"]),
        ("git commit -m 'git add -A'", []),
    ],
)
def test_a_changed_file_names_the_commit_that_it_went_into(stage, files):
    edits = [edit(1, "/w/a/kite.py"), edit(2, "/w/b/wind.py")]
    text = told(*edits, ran(3, stage, 0, "[main 1a2b3c4] x"))
    committed = [line for line in section(text, "Files changed") if "edited, committed [5]" in line]
    assert [line.partition(":")[0] for line in committed] == files
    assert "committed [" not in told(*edits, ran(3, stage, 0, "nothing to commit"))
    again = [*edits, ran(3, stage, 0, "[main 1a2b3c4] x"), edit(4, "/w/a/kite.py")]
    kite = "/w/a/kite.py: edited 2 times"
    assert kite in section(told(*again), "Files changed"), "not yet in a commit"
    other = ran(5, "git commit -m y", 0, "[main 2b3c4d5] y")
    assert kite in section(told(*again, other), "Files changed"), "nobody staged it"


SCHEMA = """model Session {
  user_id String
}

model User {
  id       String
  username String
}
"""


@pytest.mark.parametrize(
    "words, is_shown",
    [("Has the User an email field?", True), ("What does the kite weigh?", False)],
)
def test_the_definition_that_the_agent_asks_for_stands_with_what_was_read(words, is_shown):
    numbered = "\n".join(f"{n:6}→{line}" for n, line in enumerate(SCHEMA.splitlines(), start=1))
    for output in (SCHEMA, numbered):
        text = told(
            message(words, "agent"),
            pair(1, "Glob", "/w/schema.prisma", pattern="*.prisma"),
            pair(2, "Read", output, file_path="/w/schema.prisma"),
        )
        (line,) = [line for line in section(text, READ) if line.startswith("/w/schema.prisma: ")]
        assert ("model User { id String username String" in line) == is_shown
        assert "user_id" in line
