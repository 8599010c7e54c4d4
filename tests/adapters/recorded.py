"""A run of an agent of an SDK that a server has recorded is replayed by another server, without its
model.
"""

from contextlib import suppress

import pytest

import foldlog
from foldlog._testing.answers import answer_of
from foldlog._testing.run_file import run_of
from foldlog._testing.server import ModelServer
from foldlog.testing import RunDiffers, replay
from tests.adapters.contract import requests_of

PAY = {"name": "pay", "arguments": '{"euros": 5}'}


def calling_model(function):
    """Return a server that calls a tool once, and then says that it is done."""
    call = {"id": "call_1", "type": "function", "function": function}
    replies = iter(
        [
            {"role": "assistant", "content": "I pay.", "tool_calls": [call]},
            {"role": "assistant", "content": "Done."},
        ]
    )

    def answer(body, dialect):
        reply = next(replies) if body.get("tools") else {"role": "assistant", "content": "A title"}
        return answer_of(foldlog.from_openai(reply), dialect, 1)

    return ModelServer(answer)


def check_replay(agent, path, *, ignore=(), call=PAY, names_requests=False):
    """``agent(url, histories, prompt)`` runs an agent with one tool, and returns the id of its
    history. ``names_requests`` says whether the adapter records what the SDK sent.
    """
    server = calling_model(call)
    with foldlog.open("memory:") as histories:
        name = agent(server.url, histories, "pay all")
        run_of(histories[name]).write(path)
        requests = [str(each) for each in requests_of(histories[name])]
    assert requests == ["the same bytes" if names_requests else "not recorded"] * 2
    server.close()
    with foldlog.open("memory:") as histories, replay(path, ignore=ignore, update=True) as recorded:
        agent(recorded.url, histories, "pay all")
    assert len(recorded.calls) == 2
    notes = {note.split(" of ")[0].rpartition(" ")[2] for note in recorded.notes}
    # an SDK may send parameters that its hooks do not tell
    assert notes - {"parameters"} == (set() if names_requests else {"tools"}), recorded.notes
    recorded = replay(path, ignore=ignore)
    with foldlog.open("memory:") as histories, suppress(Exception):
        agent(recorded.url, histories, "pay none")
    with pytest.raises(RunDiffers, match=r"call 1 of 2 .*\n.*differs\n.*pay \[all → none\]"):
        recorded.close()
