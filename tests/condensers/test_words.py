"""What a digest reads in calls, results and texts: one rule of words a test."""

import pytest

from foldlog.condensers.prompts.rendering import (
    arguments_of,
    clip_line,
    event_text,
    readable,
    truncate,
)
from foldlog.condensers.strategies.digest.commands import (
    first_line,
    kinds_of_check,
    only_reads,
    sends,
)
from foldlog.condensers.strategies.digest.facts import (
    Section,
    deed_of,
    outcome_of,
    task_list,
    task_made,
    words_in_call,
)
from foldlog.condensers.strategies.digest.names import is_file, names_in, words_in
from foldlog.condensers.strategies.digest.rare import WordCounts
from foldlog.condensers.strategies.user_words import (
    answers_in,
    error_line,
    is_prose,
    last_line,
    of_user,
    question_in,
    unwrap,
    without_pasted,
)
from foldlog.eventstore import Action, UnknownEvent
from tests.condensers.made import answer, call, message


@pytest.mark.parametrize(
    "command, kinds",
    [
        ("pytest -q", {"test"}),
        ("> log.txt pytest -q", {"test"}),
        ("2> log.txt pytest", {"test"}),
        ("\\pytest -q", {"test"}),
        ("cd a && make", {"check"}),
        ("make lint", {"lint"}),
        ("npm run build && npm run test:unit", {"build", "test"}),
        ("cat pytest.ini", set()),
        ("a b c d e pytest", {"test"}),
        ("a b c d e f pytest", set()),
        ("bash -lc 'ruff check'", set()),
        ("ruff check", {"lint"}),
        ("", set()),
    ],
)
def test_kinds_of_check(command, kinds):
    assert kinds_of_check(command) == kinds


@pytest.mark.parametrize(
    "command, reads",
    [
        ("ls -la | head 2>/dev/null", True),
        ("A=1 cat a; wc -l b", True),
        ("cat a > b", False),
        ("echo '>' b", True),
        ("find . -name x -delete", False),
        ("cat a | tee b", False),
        ("git log && git push", False),
        ("catalog", False),
        ("ls 2>&1", True),
    ],
)
def test_commands_that_only_read(command, reads):
    assert only_reads(command) is reads


def test_first_line_that_says_something():
    assert first_line("--\nab\n abc \nabcd") == "abc"
    assert first_line("--\nab") == ""


def test_commands_that_send():
    assert [sends(command) for command in ("git push", "gh pr create", "curl -X POST u")] == [
        True
    ] * 3
    assert not any(map(sends, ("git pull", "curl u", "cat <<E\ngit push\nE")))


@pytest.mark.parametrize(
    "arguments, section, text, change",
    [
        (
            {"command": "grep -rn '*** Begin Patch'"},
            Section.READ,
            "`grep -rn '*** Begin Patch'`",
            None,
        ),
        ({"patch": "*** Begin Patch"}, Section.CALLED, 'tool {"patch": "*** Begin Patch"}', None),
        (
            {"input": "*** Begin Patch\\n*** Add File: a.py\\n+x = 100\\n*** End Patch"},
            Section.CHANGED,
            "a.py",
            ("a.py", "created", "x = 100"),
        ),
        (
            {"input": "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n-x\n+y = 200\n"},
            Section.CHANGED,
            "a.py",
            ("a.py", "moved to b.py", "y = 200"),
        ),
        (
            {"input": "*** Begin Patch\n*** Delete File: a.py\n"},
            Section.CHANGED,
            "a.py",
            ("a.py", "deleted", ""),
        ),
        (
            {"path": "a.py", "command": "delete"},
            Section.CHANGED,
            "a.py",
            ("a.py", "deleted", ""),
        ),
        (
            {"path": "a.py", "old_str": "x = 100\ny = 200", "new_str": "y = 200"},
            Section.CHANGED,
            "a.py",
            ("a.py", "edited", ""),
        ),
        (
            {"path": "a.py", "command": "create", "file_text": "# why\n\nx = 100"},
            Section.CHANGED,
            "a.py",
            ("a.py", "written", "x = 100"),
        ),
        (
            {"path": "a.md", "content": "# why\nx = 100"},
            Section.CHANGED,
            "a.md",
            ("a.md", "edited", "# why"),
        ),
        ({"path": "a.py"}, Section.READ, "a.py", None),
        ({"cmd": ["ls", "-l"], "workdir": "/w"}, Section.READ, "`ls -l`", None),
        ({"command": "make `x`", "cwd": "/w"}, Section.RAN, "`make 'x'`", None),
        ({"command": "make a <<E\n1\n2\nE"}, Section.RAN, "`make a <<E … (3 lines)`", None),
        ({"command": "make a <<E"}, Section.RAN, "`make a <<E`", None),
        ({"pattern": "x"}, Section.READ, 'tool {"pattern": "x"}', None),
        ({"question": "x", "timeout": 7}, Section.CALLED, 'tool {"question": "x"}', None),
        ({}, Section.CALLED, "tool {}", None),
    ],
)
def test_what_a_call_does(arguments, section, text, change):
    deed = deed_of("tool", arguments)
    assert (deed.section, deed.text) == (section, text)
    assert [tuple(each) for each in deed.changes] == ([] if change is None else [change])


def test_calls_that_do_nothing_but_speak():
    for arguments in ({"thought": "hm", "summary": "x"}, {"todos": []}, {"taskId": "1"}):
        assert deed_of("tool", arguments) is None
    assert [*words_in_call({"message": "a", "thought": "b", "summary": "c"})] == ["b", "a"]
    assert [*words_in_call({"message": "a", "path": "b"})] == []
    assert [*words_in_call({})] == []


def test_tasks_in_a_call():
    tasks = [
        {"id": 1, "title": "a", "status": "done"},
        {"content": "b"},
        {"step": "c", "status": "in\nwork"},
        {"note": "d"},
        "e",
    ]
    assert task_list({"plan": tasks}) == {
        "1: a": "done",
        "b": "open",
        "c": "in work",
        '{"note": "d"}': "open",
    }
    assert task_list({"plan": "text"}) is task_list({}) is None
    assert task_made("Task #3 created successfully: paint it") == "3: paint it"
    assert task_made("so Task #3 created successfully: paint it") == ""


@pytest.mark.parametrize(
    "text, fields, command, expected",
    [
        ("fine\nExit code: 0", {}, "", (False, 0, "", "fine")),
        ("bad\nno rule\nExit code: 2", {}, "", (True, 2, "no rule", "no rule")),
        ("Exit code: 1", {}, "grep x a", (True, 1, "", "")),
        (
            "grep: a: No such file\nExit code: 2",
            {},
            "grep x a",
            (True, 2, "grep: a: No such file", "grep: a: No such file"),
        ),
        ("x", {"extras": {"metadata": {"exit_code": -1}}}, "", (False, None, "", "x")),
        ("x", {"extras": {"exit_code": 3}}, "", (True, 3, "x", "x")),
        ("x", {"extras": {"error": "y"}}, "", (True, None, "x", "x")),
        ("x", {"is_error": True}, "", (True, None, "x", "x")),
        (
            "a\nERROR: No replacement was performed",
            {},
            "",
            (
                True,
                None,
                "ERROR: No replacement was performed",
                "ERROR: No replacement was performed",
            ),
        ),
        ("lsdone", {}, "ls", (False, None, "", "done")),
        ('{"output": "a", "metadata": {"exit_code": 1}}', {}, "", (True, 1, "a", "a")),
    ],
)
def test_how_a_call_ended(text, fields, command, expected):
    outcome = outcome_of(answer(text, **fields), command)
    assert (outcome.failed, outcome.exit_code, outcome.error, outcome.last) == expected
    assert outcome.is_proven


def test_exit_code_within_a_long_output():
    lines = [40 * "word ", "Exit code: 2", *(40 * "more " for _ in range(3))]
    assert outcome_of(answer("\n".join(lines))).exit_code is None
    assert outcome_of(answer("\n".join(lines[1:]))).exit_code == 2
    assert outcome_of(answer("\n".join(lines[:2]))).exit_code == 2


def test_call_that_still_runs_and_a_commit():
    running = outcome_of(answer("Command running in background with ID: b1"))
    assert not running.is_proven
    assert outcome_of(answer(200 * " " + "<status>running</status>")).is_proven
    committed = outcome_of(answer("[main (root-commit) 0123abc] kite: fold it\n 1 file changed"))
    assert committed.commit == "kite: fold it (0123abc on main)"


def test_results_that_are_json():
    assert unwrap('{"stdout": "a", "stderr": "", "exit_code": 7}') == ("a", 7)
    assert unwrap('{"output": "a", "metadata": {"exit_code": 3}}') == ("a", 3)
    assert unwrap('{"output": "a", "exit_code": null, "metadata": {"exit_code": 3}}') == ("a", 3)
    assert unwrap('{"output": "a", "exit_code": "7"}') == ("a", None)
    assert unwrap('{"output": "a", "exit_code": true}') == ("a", None)
    for text in ("{", '{"a": 1}', '{"output": 7}', '["output"]', "{" * 100_000):
        assert unwrap(text) == (text, None)


def test_lines_of_an_output_that_say_how_it_ended():
    lines = ["error: early", *(f"line {n}" for n in range(59)), "$ "]
    assert error_line("\n".join(lines)) == "error: early"
    assert error_line("\n".join([lines[0], "one more", *lines[1:]])) == "line 58"
    assert error_line("a\nValueError: x\nb") == "ValueError: x"
    assert error_line("\n \n") == last_line("--- \n") == ""
    assert last_line("3 passed\nsee log", is_check=True) == "3 passed"
    assert last_line("2 failed\n3 passed\nsee log", is_check=True) == "2 failed"
    assert last_line("3 passed\nsee log") == "see log"
    assert last_line("a\nthe door is the exit") == "the door is the exit"
    assert last_line("a\nprocess exited with code 0") == "a"
    assert last_line("a\n" + 2_000 * "b") == 2_000 * "b"


def test_questions_and_answers():
    assert question_in("One. Two? Three.") == "Two?"
    assert question_in("One? Two? Three.") == "Two?"
    assert question_in("One.") == ""
    assert answers_in("User has answered your questions: red. You can now continue") == "red"
    assert answers_in("red. You can now continue") == ""


def test_text_that_a_user_wrote():
    assert of_user("<system-reminder>x</system-reminder>do it") == "do it"
    assert of_user("<task>do it</task> and more") == "do it\n and more"
    assert of_user("<command-name>/fix</command-name><command-args>a</command-args>") == "/fix a"
    assert of_user("<command-name>/clear</command-name>") == ""
    assert of_user("a < b") == "a < b"
    assert of_user("one<ide_selection>two</ide_selection>three") == "one\nthree"


def test_pasted_texts_are_described():
    log = "\n".join(f"{n:03} " + 80 * "=" for n in range(6))
    assert without_pasted(f"See this one:\n{log}") == (
        f"See this one:\n(pasted text of {len(log)} characters: 000 {76 * '='})"
    )
    five = "\n".join(log.splitlines()[:5])
    assert without_pasted(five) == five
    short = "\n".join(5 * ["ab"] + ["c" * 384])
    assert (len(short), without_pasted(short)) == (399, short)
    assert without_pasted(short + "c").startswith("(pasted text of 400 characters: ab)")
    fenced = "\n".join(["```", *(20 * ["It is in plain words."]), "```"])
    assert without_pasted(fenced) == (
        f"(pasted text of {len(fenced)} characters: It is in plain words.)"
    )
    assert [is_prose(line) for line in ("it is so", "it is", "    it is so", "a 1 2 3", "")] == [
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("plain, prose", [(7, True), (6, False)])
def test_line_is_prose_if_seven_of_ten_words_are_plain(plain, prose):
    words = ["word"] * plain + ["x=1"] * (10 - plain)
    assert is_prose(" ".join(words)) is prose


def test_names_in_a_text():
    def found(text, **options):
        return [name for name, _ in names_in(text, **options)]

    assert found("see src/dates.py: and parse_week.") == ["src/dates.py", "parse_week"]
    assert found("12: src/dates.py") == ["src/dates.py"]
    assert found("a.py") == found("2026-03-01") == found("harbour") == []
    assert found("a_" + 63 * "b") == []
    assert found("a_" + 62 * "b") == ["a_" + 62 * "b"]
    assert found("  at f (node_modules/x.js:7)") == []
    assert found("src/dates.py lib/rest.py", is_wanted=lambda name: "rest" in name) == [
        "lib/rest.py"
    ]
    assert found("C:\\\\Users\\\\ann\\\\a.py") == ["C:\\Users\\ann\\a.py"]
    assert [*names_in("src/dates.py is read")] == [("src/dates.py", "src/dates.py is read")]
    (near,) = names_in("it is written by " + 3 * "some " + "src/dates.py, " + 5 * "words ")
    assert near == ("src/dates.py", "…by some some some src/dates.py, words words words…")
    assert [
        is_file(name) for name in ("a/b", "a.py", "run_test", "a::b", "a_b", "a.pyproject")
    ] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    assert words_in("see (src/dates.py:) now.") == {"see", "src/dates.py", "now"}


def test_rare_passages():
    counts = WordCounts()
    common = "the queue returns a stale value when the parser restarts"
    for _ in range(30):
        assert counts.rare_passages(common) == []
    rare = "nightly backups leave the harbour at seven"
    assert counts.copy().rare_passages(f"{common}\n{rare}\nharbour") == [rare]
    assert counts.copy().rare_passages(rare + 20 * " anchors") == []
    assert counts.words == 30 * 9


def test_texts_of_events_for_a_model():
    unknown = UnknownEvent(stored_kind="pin", stored_schema=1, body=b'{"a": "b\\nc"}')
    assert event_text(unknown) == 'pin:\n{"a": "b\nc"}'
    assert event_text(answer("x", tool="", is_error=True)) == "Error from a tool:\nx"
    assert event_text(message("x", "environment")) == "Environment:\nx"
    assert event_text(Action(tool="t", thought="hm", arguments="y")) == "hm\nCalls t with y"
    assert arguments_of(call(a=1)) == {"a": 1}
    assert arguments_of(Action(tool="t", arguments="plain")) == {"arguments": "plain"}
    assert arguments_of(Action(tool="t", arguments="[1]")) == {}
    assert readable(" {x") == " {x"
    assert readable({"a": "x\ty"}) == '{"a": "x\ty"}'
    assert (clip_line("abcd", 4), clip_line("abcde", 4)) == ("abcd", "abc…")


def test_middle_of_a_long_text_is_left_out():
    text = 200 * "a" + 200 * "b"
    assert truncate(text, 400) == truncate(text, None) == truncate(text, -1) == text
    note = "\n[... 200 of 400 characters and more left out; see x ...]\n"
    cut = truncate(text, 200, "; see x")
    assert cut == 71 * "a" + note + 71 * "b"
    assert len(cut) == 200
    assert truncate(text, 10) == 10 * "a"
    bare = "\n[... 344 of 400 characters and more left out ...]\n"
    assert truncate(text, 56) == 3 * "a" + bare + 2 * "b"
    assert truncate(text, 51) == 51 * "a", "the note alone would say nothing"
    assert truncate(text, 52) == "a" + bare.replace("344", "348")
    assert truncate(text, 0) == ""
