"""The digest tells the truth: whose words these are, what failed, and what was asked."""

from __future__ import annotations

import json

import pytest

from foldlog.condensers.strategies.digest import Digest
from foldlog.condensers.strategies.digest_words import (
    error_line,
    gist_of_output,
    names_in,
    of_user,
    only_reads,
    orders_in,
    unwrapped,
)
from foldlog.eventstore.events import Action, CondensationSummary, Message, Observation
from tests.condensers.test_digest import digest, ran, section

ASKED, SAID, SHOWN = "Asked by the user", "Said by the agent", "Shown by the environment"


def user(text):
    return Message(source="user", content=text)


def environment(text):
    return Message(source="environment", content=text)


def rejected(text):
    return Observation(tool="Edit", call_id="c", is_error=True, content=REJECTION + text)


# -- whose words ------------------------------------------------------------------------------------------------------


def test_the_environments_words_are_not_the_agents():
    output = "src/kite.py:3: E501\n[File: /w/kite.py (20 lines total)]\n(Open file: /w/kite.py)\nbash-$"
    text = digest(user("lint it"), Message(source="agent", content="Let me run it."), environment(output))
    assert section(text, SAID) == ["Let me run it."]
    assert section(text, SHOWN) == ["src/kite.py:3: E501 [File: /w/kite.py (20 lines total)]"]


TAGGED = "<issue_description>it leaks</issue_description> mend <b>that</b>"
IDE = "# Context from my IDE setup:\n\n## Open tabs:\n- kite.py\n\n## My request for Codex:\nfly it\n"
AGENTS = "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
SELECTED = "read this\n\nUser has selected the following files for you to read:\nkite.md"


@pytest.mark.parametrize(
    "message, asked, shown",
    [
        ("<ide_opened_file>It is kite.py.</ide_opened_file>\nmend it", "mend it", ["ide_opened_file: It is kite.py."]),
        ("mend it\n<system-reminder>\nBe brief.\n</system-reminder>", "mend it", ["system-reminder: Be brief."]),
        ("<environment_context>\n<cwd>/w</cwd>\n</environment_context>", "", ["environment_context: <cwd>/w</cwd>"]),
        (IDE, "fly it", ["the user's editor: # Context from my IDE setup: … - kite.py"]),
        ("<task>\nfly it\n</task>\n<environment_details>v</environment_details>", "fly it", ["environment_details: v"]),
        ("say <task>it</task>", "say <task>it</task>", []),
        (AGENTS, "", ["INSTRUCTIONS: Use tabs."]),
        (SELECTED, "read this", ["files that the user selected: kite.md"]),
        ("<local-command-stdout>Bye!</local-command-stdout>", "", ["local-command-stdout: Bye!"]),
        ("<bash-input>ls kites</bash-input>", "", ["the user ran: ls kites"]),
        ("[Request interrupted by user for tool use]", "", ["the user interrupted the agent"]),
        ("OBSERVATION:\nkite.py\n[Command finished with exit code 0]", "", ["OBSERVATION: kite.py"]),
        ("Solve it.\n(Open file: n/a)\n(Current directory: /w)\nbash-$", "Solve it.", []),
        (TAGGED, TAGGED, []),
        ("a < b and <ide_selection> is never closed", "a < b and <ide_selection> is never closed", []),
    ],
)
def test_a_users_message_is_what_the_user_asked_and_what_was_shown_with_it(message, asked, shown):
    assert of_user(message) == (asked, tuple(shown))
    text = digest(user(message))
    assert section(text, ASKED) == ([asked] if asked else [])
    assert section(text, SHOWN) == shown


@pytest.mark.parametrize(
    "name, arguments, asked", [("/review", "", "/review"), ("/plan", "the kite", "/plan the kite"), ("/clear", "", "")]
)
def test_a_command_for_the_agent_is_a_request_and_one_for_the_program_is_not(name, arguments, asked):
    message = f"<command-message>{name[1:]} is running…</command-message>\n<command-name>{name}</command-name>"
    if arguments:
        message += f"\n<command-args>{arguments}</command-args>"
    assert " ".join(of_user(message).asked.split()) == asked
    assert of_user(message).shown == ()


# -- what failed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    ["$", "bash-$", "bash-5.1$", ">>>", "root@7f3a:/w# ", "(venv) me@box ~/w $", "~/w %", "/w #", "PS C:\\w>"],
)
def test_a_prompt_of_the_shell_is_no_error(prompt):
    text = digest(ran(1, "make kite", 2, f"kite.c:3: undefined wing\n{prompt}"))
    assert section(text, "Errors still open") == ["`make kite` → kite.c:3: undefined wing"]
    assert "Errors" not in digest(ran(1, "grep kite x", 1, f"\n{prompt}\n"))


@pytest.mark.parametrize("line", ["50%", "cost: 5$", "a > b", "see me@example.com about 3%"])
def test_a_line_that_only_looks_like_a_prompt_is_kept(line):
    assert error_line(f"first\n{line}") == line


def test_the_line_that_names_the_error_is_told_and_not_the_hint_after_it():
    output = "Traceback:\nImportError: no module named kite\n\nhint: install it\nsee the manual"
    assert error_line(output) == "ImportError: no module named kite"
    assert error_line("<tool_use_error>File does not exist.</tool_use_error>") == "File does not exist."
    assert error_line("The user doesn't want to proceed with this tool use. It was stopped.") == "rejected by the user"
    assert error_line(" \n") == ""


def test_an_output_in_json_is_read_for_its_exit_code_and_its_words():
    silent = json.dumps({"output": "", "metadata": {"exit_code": 1, "duration_seconds": 0.1}})
    failed = json.dumps({"output": "sed: no such file\n", "metadata": {"exit_code": 2}})
    text = digest(ran(1, "rg kite", content=silent), ran(2, "sed -i s/a/b/ x", content=failed))
    assert section(text, "Read and searched") == ["`rg kite` → exit 1"]
    assert section(text, "Commands run") == ["`sed -i s/a/b/ x` → exit 2"]
    assert section(text, "Errors still open") == ["`sed -i s/a/b/ x` → sed: no such file"]
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

    text = digest(edit(1, "/kite.py", is_error=True), edit(2, "/w/kite.py"), edit(3, "/w/kite.py", is_error=True))
    assert section(text, "Files changed") == ["/w/kite.py"]
    assert section(text, "Errors still open") == ["/kite.py → it is outside", "/w/kite.py → it is outside"]
    earlier = CondensationSummary(id=-2, content=text)
    again = Digest.of([earlier, *edit(4, "/w/kite.py", is_error=True), *edit(5, "/new.py", is_error=True)]).text(6_000)
    assert section(again, "Files changed") == ["/w/kite.py"], "what an earlier digest says was done stays done"


def test_a_result_belongs_to_the_call_that_is_its_cause_where_calls_have_one_id():
    made = [Action(id=n, tool="run", arguments={"command": f"make {n}"}, call_id="run") for n in (1, 2)]
    results = [
        Observation(id=2 + n, tool="run", content=f"error {n}", call_id="run", cause=n, is_error=True) for n in (2, 1)
    ]
    text = Digest.of([*made, *results]).text(6_000)
    assert sorted(section(text, "Errors still open")) == ["`make 1` → error 1", "`make 2` → error 2"]


def test_a_document_within_a_command_is_counted_and_not_quoted():
    text = digest(ran(1, "cd /w\ncat > kite.py <<'EOF'\nimport wind\nfly()\nEOF", 0))
    assert section(text, "Commands run") == ["`cd /w cat > kite.py <<'EOF' … (3 lines)` → exit 0"]


def test_an_output_is_told_by_its_first_and_its_last_line():
    assert gist_of_output("one\n\ntwo\nthree\n$ ") == "one … three"
    assert gist_of_output("one\ntwo") == "one two"
    assert gist_of_output("[Current working directory: /w]") == ""


# -- what was asked ---------------------------------------------------------------------------------------------------


def test_the_newest_request_is_quoted_in_full_and_older_ones_still_say_what_was_asked():
    newest = "Now write the manual: " + "one chapter for each kind of kite. " * 60
    older = [user(f"{n}: " + "paint the kite in another colour " * 20) for n in range(8)]
    asked = section(Digest.of([*older, user(newest)]).text(6_000), ASKED)
    assert asked[-1] == newest.strip()
    assert [line[:2] for line in asked[:-1]] == [f"{n}:" for n in range(8)]
    assert min(map(len, asked[:-1])) >= 160


def test_a_request_is_left_out_rather_than_cut_to_a_few_words():
    requests = [user(f"{n}: " + "paint the kite in another colour " * 20) for n in range(60)]
    text = Digest.of([*requests, *ran(1, "make", 0)]).text(3_000)
    asked = section(text, ASKED)
    assert asked[0] == "(46 earlier left out)"
    assert asked[1].startswith("0: "), "what was asked first stays"
    assert asked[-1].endswith("colour"), "and the newest, in full"
    assert all(len(line) >= 160 for line in asked[1:])
    assert section(text, "Commands run") == ["`make` → exit 0"]


def test_a_newest_request_too_long_for_its_section_keeps_both_ends_and_says_how_much_is_missing():
    request = "Begin here. " + "detail " * 2_000 + "And never use glue."
    work = [e for n in range(300) for e in ran(n, f"make part_{n}", 0)]
    for others, least in ((), 5_500), (work, 1_500):
        (asked,) = section(Digest.of([user(request), *others]).text(6_000), ASKED)
        assert asked.startswith("Begin here. detail")
        assert asked.endswith("And never use glue.")
        assert "characters and more left out" in asked
        assert least < len(asked) < least + 500


REJECTION = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"


def test_what_the_user_said_in_a_rejection_is_a_request():
    edit = Action(tool="Edit", arguments={"file_path": "/w/a.py"}, call_id="c")
    said = "never touch a.py,\nrename it on main instead"
    text = digest(user("mend it"), edit, rejected(said))
    assert section(text, ASKED) == ["mend it", "never touch a.py, rename it on main instead"]
    assert section(text, "Errors still open") == ["/w/a.py → rejected by the user"]
    quoted = Observation(tool="Read", call_id="c", content=REJECTION + said)
    assert section(digest(user("mend it"), edit, quoted), ASKED) == ["mend it"], "a file may quote it"


@pytest.mark.parametrize(
    "text, orders",
    [
        ("Mend it. Never touch a.py! Is that so?", ["Never touch a.py!"]),
        ("use tabs from now on\nand don’t push", ["use tabs from now on", "and don’t push"]),
        ("Bitte niemals auf main schreiben.", ["Bitte niemals auf main schreiben."]),
        ("不要碰 a.py", ["不要碰 a.py"]),
        ("whatever works, nevertheless", []),
    ],
)
def test_what_holds_for_good_is_an_order(text, orders):
    assert orders_in(text) == orders


def test_an_order_is_never_lost():
    """Through many digests with long requests after it, also if it was said in a rejection."""
    text = Digest.of([user("Mend it. Never push to main."), rejected("always ask first")]).text(3_000)
    for n in range(60):
        request, work = user(f"{n}: " + "paint the kite in another colour " * 20), ran(n, f"make src/part_{n}.c", 0)
        text = Digest.of([CondensationSummary(id=-2, content=text), request, *work]).text(3_000)
    assert section(text, "Standing orders") == ["Never push to main.", "always ask first"]
    assert "0: paint" not in text


# -- what the agent did -----------------------------------------------------------------------------------------------


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
def test_a_command_in_the_agents_words_is_a_call_where_the_environment_answers(wrote, said, command):
    agent = Message(id=1, source="agent", content=wrote)
    text = digest(agent, environment("It flies."))
    assert section(text, SAID) == said
    assert section(text, "Commands run") == ([f"`{command}`"] if command else [])
    assert section(text, SHOWN) == ([] if command else ["It flies."])
    assert "Commands run" not in digest(agent, user("It flies.")), "a person answered"


@pytest.mark.parametrize(
    "command, reads",
    [
        ("sed -n 1,200p a.ts", True),
        ("cd /w && rg -n 'a|b > c' src 2>/dev/null | head -5", True),
        ("git diff; ls", True),
        ("sed -i s/a/b/ a.ts", False),
        ("cat a > b", False),
        ("find . -name x -delete", False),
        ("cat a && rm a", False),
        ("catalog", False),
    ],
)
def test_a_command_that_only_reads_can_be_run_again(command, reads):
    assert only_reads(command) == reads
    assert section(digest(ran(1, command, 0)), "Read and searched" if reads else "Commands run") != []


def test_names_are_paths_identifiers_versions_and_long_numbers():
    text = "see /w/src/a.py:12, kiteFly, MAX_SIZE, std::vec::Vec, https://kite.dev:80/x?y=1, 123456 and v1.2.3-rc1."
    names = ["/w/src/a.py", "kiteFly", "MAX_SIZE", "std::vec::Vec", "https://kite.dev:80/x?y=1", "123456", "v1.2.3-rc1"]
    assert list(names_in(text)) == names
    assert list(names_in("0.379s 12:34:56 2025-09-25 </command-name> however a.py " + "x1" * 40)) == []
