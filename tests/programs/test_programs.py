"""Each real program compacts: a fact is in no prompt then, ``why`` names the compaction, ``recall``
returns it.
"""

import json
import re
from contextlib import closing

import pytest

from tests.programs.driving import PROGRAMS
from tests.programs.stand_in import StandIn

WORD = "zebra_lighthouse_4711"


@pytest.fixture(params=PROGRAMS)
def program(request, tmp_path):
    with closing(StandIn()) as model:
        yield PROGRAMS[request.param](tmp_path, model)


def answers_in(requests):
    """Return the results of the last calls that each request brings, as texts."""
    for request in requests:
        last = next(
            filter(None, (request.get(name) for name in ("messages", "input", "contents")))
        )[-2:]
        yield json.dumps(last, ensure_ascii=False)


def test_dropped_fact_is_named_and_recalled(program):
    model = program.model
    program.foldlog("setup", program.name)
    model.answers = [f"The word is {WORD}."]
    program.say("Make up a word.")
    model.answers = ["fine"]
    program.say("And now something else.")
    before = len(model.requests)
    assert WORD in json.dumps(model.requests[before - 1]), "it was in the prompt"
    program.compact()
    model.answers = ["I do not know it any more."]
    before = len(model.requests)
    program.say("What was the word?")
    prompts = [json.dumps(request) for request in model.requests[before:]]
    assert [prompt[-20_000:] for prompt in prompts if WORD in prompt] == []
    assert prompts
    conversation = program.conversation
    answer = program.foldlog("why", conversation, WORD, "--json")
    fact = json.loads(answer)["fact"]
    assert (fact["is_known"], fact["by"] is not None) == (False, True)
    assert re.search(r"condensation \d+ forgot it; its summary does not contain it", fact["reason"])
    # No server knows which session asks: Claude Code starts it before it knows with which one it
    # goes on.
    of = {"conversation": conversation}
    tool_calls = [
        ("dropped", of),
        ("why", {"about": WORD, **of}),
        ("recall", {"query": "word", **of}),
        ("dropped", {}),
    ]
    model.answers = [*tool_calls, "end"]
    program.say("Look it up.")
    assert model.not_offered == []
    brought = [model.requests[number] for number in model.results[-4:]]
    dropped, why, recalled, listed = answers_in(brought)
    assert "If your conversation is one of these" in listed
    assert conversation in listed
    assert f"compaction {fact['by']} at " in dropped
    assert f"condensation {fact['by']} forgot it; its summary does not contain it" in why
    assert f"The word is {WORD}." in recalled
    exported = program.foldlog("export", conversation)
    assert WORD in exported
    program.foldlog("setup", program.name, "--remove")


def test_resumed_session_counts_each_call_once(program):
    model = program.model
    for tokens in (1_111, 2_222):
        model.tokens_once = tokens
        program.say("And now?")
    assert len(model.requests) == 2
    program.foldlog("import", "--from", program.format)
    (row,) = json.loads(program.foldlog("list", "--long", "--json"))["conversations"]
    assert (row["spent"]["calls"], row["spent"]["prompt_tokens"]) == (2, 3_333)


def test_two_programs_on_one_store(tmp_path):
    with closing(StandIn()) as first, closing(StandIn()) as second:
        claude = PROGRAMS["claude-code"](tmp_path / "a", first)
        codex = PROGRAMS["codex"](tmp_path / "b", second)
        for program in (claude, codex):
            program.environment["FOLDLOG_DB"] = str(tmp_path / "both.db")
            program.foldlog("setup", program.name)
            program.model.answers = [f"I am {program.name}."]
            program.say("Who are you?")
        for program, other in ((claude, codex), (codex, claude)):
            before = len(program.model.requests)
            program.model.answers = [
                ("why", {"about": "I am"}),
                ("dropped", {}),
                ("recall", {"query": "I am"}),
                "end",
            ]
            program.say("Look it up.")
            assert program.model.not_offered == []
            answers = "".join(answers_in(program.model.requests[before:]))
            assert f"I am {other.name}." not in answers
            assert (
                "is known, by event" in answers or "If your conversation is one of these" in answers
            )


def test_copilot_waits_for_a_slow_server(tmp_path):
    """Copilot waits ten seconds for the answer to ``server/discover``, and then sends
    ``initialize``.
    """
    with closing(StandIn()) as model:
        copilot = PROGRAMS["copilot"](tmp_path, model)
        copilot.foldlog("setup", copilot.name)
        settings = tmp_path / ".copilot/mcp-config.json"
        document = json.loads(settings.read_text())
        server = document["mcpServers"]["foldlog"]
        slowly = ["-c", 'sleep 15; exec "$@"', "sh", server["command"], *server["args"]]
        server |= {"command": "sh", "args": slowly}
        settings.write_text(json.dumps(document))
        model.answers = [("sessions", {}), "end"]
        copilot.say("Look it up.")
        assert model.not_offered == []
