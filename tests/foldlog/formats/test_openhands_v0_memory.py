"""The View of a V0 history is what V0's own memory sent: the calls that the model wrote, and what it was told."""

from __future__ import annotations

import pytest

from foldlog.eventstore.events import Action, Message, Observation
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of

V0 = "openhands-v0"


def metadata(call_id, name, arguments, content=None, response="r", before=()):
    call = {"function": {"arguments": arguments, "name": name}, "id": call_id, "type": "function"}
    message = {"content": content, "role": "assistant", "tool_calls": [*before, call], "function_call": None}
    about = {"id": response, "model": "m", "object": "chat.completion"}
    choices = [{"finish_reason": "tool_calls", "index": 0, "message": message}]
    model_response = {**about, "choices": choices}
    return {
        "function_name": name,
        "tool_call_id": call_id,
        "model_response": model_response,
        "total_calls_in_response": len(before) + 1,
    }


def action(number, name, call=None, source="agent", **args):
    record = {"id": number, "source": source, "action": name, "args": args}
    return record if call is None else {**record, "tool_call_metadata": call}


def observation(number, name, content, cause=None, call=None, **extras):
    record = {"id": number, "source": "environment", "observation": name, "content": content, "extras": extras}
    record |= {} if cause is None else {"cause": cause}
    return record if call is None else {**record, "tool_call_metadata": call}


def said(number, text):
    return {"id": number, "source": "user", "action": "message", "args": {"content": text}}


read = reader_of(V0)


def messages(*records):
    return View.from_events(read(*records)).to_messages()


def texts(message):
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def test_a_call_is_sent_as_the_model_wrote_it():
    call = metadata("c1", "execute_bash", '{"command": "ls", "is_input": "false"}', "Look around.")
    run = action(0, "run", call, command="ls", is_input=False, thought="Look around.", blocking=False, hidden=False)
    ran = observation(1, "run", "kite.py", 0, call, command="ls", hidden=False)
    (_, asked, answered) = messages(said(-1, "mend it"), run, ran)
    assert asked == {
        "role": "assistant",
        "content": "Look around.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "execute_bash", "arguments": '{"command": "ls", "is_input": "false"}'},
            }
        ],
    }
    assert answered == {"role": "tool", "tool_call_id": "c1", "content": "kite.py"}


def test_of_parallel_calls_the_first_has_what_the_model_said():
    one = metadata("c1", "execute_bash", '{"command":"ls"}', "Two looks.")
    first = one["model_response"]["choices"][0]["message"]["tool_calls"][0]
    two = metadata("c2", "execute_bash", '{"command":"pwd"}', "Two looks.", before=(first,))
    one["model_response"] = two["model_response"]
    records = [
        action(0, "run", one, command="ls", thought="Two looks."),
        observation(1, "run", "a", 0, one),
        action(2, "run", two, command="pwd", thought=""),
        observation(3, "run", "b", 2, two),
    ]
    events = read(*records)
    assert [event.thought for event in events if isinstance(event, Action)] == ["Two looks.", ""]
    assert [event.arguments for event in events if isinstance(event, Action)] == [
        '{"command":"ls"}',
        '{"command":"pwd"}',
    ]


@pytest.mark.parametrize(
    "response, tool, arguments",
    [
        ({"id": "r", "choices": []}, "bash", {"command": "ls"}),
        ({"id": "r", "choices": [{"message": {"tool_calls": [{"id": "other"}]}}]}, "bash", {"command": "ls"}),
        ({"id": "r", "choices": [{"message": {"tool_calls": "x", "content": 5}}]}, "bash", {"command": "ls"}),
        (None, "bash", {"command": "ls"}),
    ],
)
def test_where_the_response_does_not_hold_the_call_its_name_is_known_all_the_same(response, tool, arguments):
    call = {"function_name": "bash", "tool_call_id": "c1", "model_response": response, "total_calls_in_response": 1}
    (event,) = read(action(0, "run", call, command="ls"))
    assert isinstance(event, Action)
    assert (event.tool, event.arguments, event.call_id) == (tool, arguments, "c1")


def test_broken_arguments_are_kept_as_the_model_wrote_them():
    (event,) = read(action(0, "run", metadata("c", "execute_bash", '{"command": "ls'), command="ls"))
    assert isinstance(event, Action)
    assert event.arguments == '{"command": "ls'


def test_the_ending_of_a_command_is_told():
    call = metadata("c1", "execute_bash", "{}")
    about = {
        "exit_code": 2,
        "working_dir": "/w",
        "py_interpreter_path": "/p",
        "prefix": "[before]\n",
        "suffix": "\n[s]",
    }
    ran = observation(1, "run", "torn", 0, call, command="ls", metadata=about)
    _, _, answered = messages(said(-1, "mend it"), action(0, "run", call), ran)
    assert answered["content"] == (
        "[before]\ntorn\n[s]\n[Current working directory: /w]\n[Python interpreter: /p]\n"
        "[Command finished with exit code 2]"
    )
    (event,) = read({**ran, "extras": {"metadata": {"exit_code": -1, "working_dir": 5, "prefix": None}}})
    assert event.content == "torn"


def recall(number, query="kites", kind="knowledge", source="user"):
    return action(number, "recall", source=source, recall_type=kind, query=query, thought="")


def knowledge(*names):
    return [{"name": name, "trigger": f"a {name}", "content": f"all about {name}"} for name in names]


def test_a_recall_is_no_call_and_its_knowledge_is_told_once():
    records = [
        said(0, "mend the kite"),
        recall(1),
        observation(
            2, "recall", "Retrieved knowledge", 1, recall_type="knowledge", microagent_knowledge=knowledge("kite")
        ),
        said(3, "and the spar"),
        recall(4, source="agent"),
        observation(
            5, "recall", "Retrieved", 4, recall_type="knowledge", microagent_knowledge=knowledge("kite", "spar")
        ),
        recall(6),
        observation(7, "recall", "Retrieved", 6, recall_type="knowledge", microagent_knowledge=knowledge("spar")),
    ]
    (message,) = messages(*records)
    assert texts(message) == [
        "mend the kite",
        "Knowledge about kite, called for by the word 'a kite':\nall about kite",
        "and the spar",
        "Knowledge about spar, called for by the word 'a spar':\nall about spar",
    ]


def test_knowledge_that_was_forgotten_is_told_again():
    forget = {"id": 3, "source": "agent", "action": "condensation", "args": {"forgotten_event_ids": [1, 2]}}
    told = [
        said(0, "kite"),
        recall(1),
        observation(2, "recall", "", 1, recall_type="knowledge", microagent_knowledge=knowledge("kite")),
    ]
    again = observation(5, "recall", "", 4, recall_type="knowledge", microagent_knowledge=knowledge("kite"))
    (message,) = messages(*told, forget, recall(4), again)
    assert texts(message)[1:] == ["Knowledge about kite, called for by the word 'a kite':\nall about kite"]
    (message,) = messages(*told, recall(4), again)
    assert len(texts(message)) == 2


def test_what_is_known_of_the_workspace_is_told_and_stored_once():
    rules = "Run make check. " * 200
    extras = {
        "recall_type": "workspace_context",
        "repo_name": "shed/kites",
        "repo_directory": "kites",
        "repo_branch": None,
        "repo_instructions": rules,
        "runtime_hosts": {"http://localhost": 8011},
        "custom_secrets_descriptions": {"TOKEN": "for the shed"},
        "date": "2026-02-17",
        "working_dir": "",
        "microagent_knowledge": [7, *knowledge("kite")],
    }
    events = read(said(0, "hi"), recall(1, kind="workspace_context"), observation(2, "recall", "Added", 1, **extras))
    (message,) = View.from_events(events).to_messages()
    assert texts(message)[1] == (
        "Repository: shed/kites\nCloned to: kites\nDate: 2026-02-17\nHost and port: http://localhost 8011\n"
        f"Secret: TOKEN for the shed\nInstructions of the repository:\n{rules}\n"
        "Knowledge about kite, called for by the word 'a kite':\nall about kite"
    )
    assert isinstance(events[2], Observation)
    assert events[2].extras["repo_instructions"] is None


def test_what_the_user_did_is_told_to_the_model():
    records = [
        action(0, "run", source="user", command="git status", thought=""),
        observation(1, "run", "clean", 0, command="git status", metadata={"exit_code": 0}),
        action(2, "read", source="user", path="/w/a.py"),
        observation(3, "read", "x = 1", 2, path="/w/a.py"),
    ]
    (message,) = messages(*records)
    assert message["role"] == "user"
    assert texts(message) == [
        "User executed the command:\ngit status",
        "\nObserved result of command executed by user:\nclean\n[Command finished with exit code 0]",
        "User requested to read file: /w/a.py",
        "x = 1",
    ]
    view = View.from_events(read(*records[:1], recall(1)))
    assert view.open_calls == ()


def test_an_error_that_answers_no_call_is_told():
    error = observation(1, "error", "no such tool", error_id="E")
    _, event = read(said(0, "hi"), error)
    assert isinstance(event, Message)
    assert event.content == "no such tool\n[Error occurred in processing last action]"
    rejected = observation(2, "user_rejected", "")
    (message,) = messages(said(0, "hi"), error, rejected)
    assert texts(message)[-1] == "OBSERVATION:\n\n[Last action has been rejected by the user]"


@pytest.mark.parametrize(
    "thought, content, shown",
    [
        ("Nothing is left.", "Nothing is left.", "Nothing is left."),
        ("", "All is done.", "All is done."),
        ("First.", "Then.", "First.\nThen."),
        ("", None, "It flies."),
    ],
)
def test_the_last_action_shows_its_thought_and_not_its_call(thought, content, shown):
    call = metadata("c", "finish", '{"message":"It flies."}', content)
    (event,) = read(action(0, "finish", call, final_thought="It flies.", thought=thought, outputs={}))
    assert isinstance(event, Message)
    assert event.content == shown


def test_images_of_a_cell_are_shown():
    call = metadata("c", "execute_ipython_cell", '{"code":"plot()"}')
    shown = observation(1, "run_ipython", "a plot", 0, call, code="plot()", image_urls=["data:image/png;base64,AA=="])
    _, event = read(action(0, "run_ipython", call, code="plot()"), shown)
    assert event.content == (
        {"type": "text", "text": "a plot"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    )
