"""``foldlog replay``: the requests of a run, and a new run in a fork."""

import json
import re
import shlex
import sys

import pytest

import foldlog as api
from tests.foldlog.history.test_sent_requests import run_agent
from tests.said import said

OTHER_MODEL = """
import json, sys
body = json.load(sys.stdin)
results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
function = {"name": "pay", "arguments": json.dumps({"euros": EUROS + len(results)})}
call = {"id": f"new{len(results)}", "type": "function", "function": function}
calls = {"content": None, "tool_calls": [call]}
done = {"content": f"{body['tools'][0]['function']['name']}: {results}"}
print(json.dumps({"role": "assistant", **(calls if len(results) < 3 else done)}))
"""


@pytest.fixture
def run(foldlog, tmp_path):
    """A run of three payments and a second question, with the command."""
    with api.open(tmp_path / "foldlog.db") as histories:
        history = histories["refund"]
        run_agent(history, "openai", 3)
        history.append_reply({"role": "assistant", "content": "Done."})
        history.append(said("thanks"))
        history.append_reply({"role": "assistant", "content": "Bye."})
    return foldlog


def model_command(folder, script):
    """Return the command line of a model that this script answers for."""
    (folder / "model.py").write_text(script)
    return shlex.join([sys.executable, str(folder / "model.py")])


def fork_of(run, tmp_path, line, *arguments):
    document = run(f"replay refund --json {line}", *arguments).document
    with api.open(tmp_path / "foldlog.db") as histories:
        return document, [*histories[document["fork"]].events()]


def test_each_request_is_made_again(run):
    ran = run("replay refund --until 4")
    assert ran.out.splitlines() == [
        "call 4 (event 9): not recorded",
        "3 of 4 requests with the same bytes",
    ]


def test_another_model_gets_the_recorded_results(run, tmp_path):
    command = model_command(tmp_path, OTHER_MODEL.replace("EUROS", "0"))
    document, events = fork_of(run, tmp_path, "--until 1 --then", command)
    answers = [event.content for event in events if type(event).__name__ == "Message"]
    paid = "pay: ['paid 0 of 3', 'paid 1 of 3', 'paid 2 of 3']"
    assert answers == ["pay all", paid, "thanks", paid]
    assert document["ended"] == "the recorded run has no further message of the user"
    assert run("diff refund", document["fork"]).status == 0


def test_command_that_cannot_answer_is_refused(run, tmp_path):
    assert (
        "--then is no command line (No closing quotation)"
        in run("replay refund --then", "it's").err
    )
    script = tmp_path / "model.sh"
    script.write_text("no line with an interpreter")
    script.chmod(0o700)
    ran = run("replay refund --until 1 --then", str(script))
    assert ran.status == 2
    assert f"{script} cannot be started: Exec format error; the fork " in ran.err


def test_fork_ends_without_a_recorded_result(run, tmp_path):
    command = model_command(tmp_path, OTHER_MODEL.replace("EUROS", "7"))
    document, events = fork_of(run, tmp_path, "--then", command)
    assert document["ended"].endswith(
        f'has no result for event {events[-2].id}: pay({{"euros": 7}})'
    )


def test_fork_stays_if_the_model_fails(run, tmp_path):
    refused = run("replay refund --then", model_command(tmp_path, "raise SystemExit('no model')"))
    assert refused.status == 2
    assert "no model" in refused.err
    fork = re.search("the fork '([^']+)' has the run up to here", refused.err)[1]
    assert run(f"view {fork}").status == 0


def test_another_condenser_gets_the_recorded_replies(run, tmp_path):
    (tmp_path / "small.toml").write_text('[condenser]\ntype = "digest"\nmax_size = 6\n')
    document, events = fork_of(run, tmp_path, "--until 1 --condenser small.toml")
    assert any(isinstance(event, api.CondensationAction) for event in events)
    assert json.loads(run("view", document["fork"], "--json").out)["version"] == document["version"]


@pytest.mark.parametrize(
    "line, problem",
    [
        (
            "refund --until 5 --then x",
            "has 5 calls of a model, and --until is 5; name a number from 0",
        ),
        ("refund --until 99", "and --until is 99; name a number from 1 to 5"),
        ("refund --until 0", "and --until is 0; name a number from 1 to 5"),
        ("refund --then ''", "--then is empty"),
        ("refund --until 2 --then 'echo no reply'", "printed no reply as JSON: b'no reply"),
        (
            """refund --until 2 --then "printf '\\"\\\\377\\"'" """,
            "printed no reply as JSON: b'\"\\xff\"'",
        ),
        ("empty", "has no reply of a model"),
    ],
)
def test_what_cannot_be_replayed_is_refused(line, problem, run, tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["empty"].append(said("hi"))
    ran = run(f"replay {line}")
    assert (ran.status, problem in ran.err) == (2, True), ran
