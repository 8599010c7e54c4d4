"""A ``History`` means one conversation. None of its methods works on another conversation that has
taken its id since.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from unittest.mock import call

import pytest

from foldlog import Action, CondensationAction, Histories, History, RecallTool
from foldlog.aio import AsyncHistory
from foldlog.eventstore import ConversationErased, Store
from tests.said import said

LONG = 300
"""More events than are read at once for a View."""

LATE = {"role": "assistant", "content": "late"}

CALL = Action(tool="t", call_id="a")
OPEN_CALL = Action(id=1, tool="t", call_id="a")
ARGUMENTS = {
    "append": call(said("late")),
    "append_records": call([LATE], format="openai-chat"),
    "append_reply": call(LATE),
    "append_tool_result": call("a", "late"),
    "ask_approval": call(OPEN_CALL, to="ann"),
    "at": call(1),
    "begin_child": call(OPEN_CALL),
    "continue_in": call("claude-code"),
    "decide": call(OPEN_CALL, True, by="ann"),
    "difference": call(0, 1),
    "document": call("state"),
    "fact": call("second"),
    "fork": call(id="a fork"),
    "hand_overs": call("word"),
    "lease": call(wait_s=0),
    "once": call("k", lambda: LATE),
    "recorded": call("k"),
    "redact": call(1, reason="asked for"),
    "retract": call(1),
    "run": call(OPEN_CALL, print, repeat="safe"),
    "sent_request": call(1),
    "set_attributes": call(user="late"),
    "settle": call("k", "late"),
    "tail": call(3),
    "why": call(1),
}
"""The arguments of the methods that need some."""


def methods(face):
    return [
        name for name in dir(face) if not name.startswith("_") and callable(getattr(face, name))
    ]


METHODS = ["__len__", *methods(History)]


def call_method(history, name):
    """Return what a method returns once it has done all of its work."""
    arguments = ARGUMENTS.get(name, call())
    result = getattr(history, name)(*arguments.args, **arguments.kwargs)
    if isinstance(result, RecallTool):
        return result.recall("second")
    if isinstance(result, AbstractContextManager):
        with result as entered:
            return entered
    return list(result) if isinstance(result, Iterator) else result


@pytest.fixture(autouse=True)
def sessions(monkeypatch, tmp_path):
    """Let ``continue_in`` write into the folder of the test."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))


@pytest.fixture(params=["one object", "two objects"])
def histories(request, recorder):
    """The histories that hold the old object, and the histories that erase its conversation and
    begin another one.
    """
    first = Histories(Store(recorder))
    return first, first if request.param == "one object" else Histories(Store(recorder))


def old_ones(histories):
    """Return objects of conversation c1 by the way in which each met it."""
    wrote, read, looked = (histories["c1"] for _ in range(3))
    created = histories.create("c1", {"user": "old"})
    wrote.append([said("first"), CALL], documents={"state": 1})
    assert (read.version(), len(looked.view())) == (4, 2)
    documents = histories["c1"]
    tail = histories["c1"]
    assert (documents.document("state"), len(tail.tail(1))) == (1, 1)
    return {
        "wrote": wrote,
        "read": read,
        "looked": looked,
        "made": created,
        "documents": documents,
        "tail": tail,
    }


def begun_again(histories):
    histories.erase("c1", reason="asked for")
    new = histories.create("c1", {"user": "new"}, replace_erased=True)
    new.append([said("second"), CALL], documents={"state": 2})
    new.view()
    return new


def test_both_faces_have_the_same_methods():
    assert methods(AsyncHistory) == methods(History)


def test_no_method_works_on_a_successor(histories):
    olds = old_ones(histories[0])
    new = begun_again(histories[1])
    before = list(new.events())
    for met, old in olds.items():
        for name in METHODS:
            with pytest.raises(ConversationErased):
                pytest.fail(f"{name} of one that {met}: {call_method(old, name)!r}")
    assert list(new.events()) == before
    assert (new.current_lease(), "a fork" in histories[1], len(new.view())) == (None, False, 2)
    with new.lease(wait_s=0), pytest.raises(ConversationErased):
        olds["read"].current_lease()


def test_a_view_does_not_read_a_successor(histories):
    first, second = histories
    first["c1"].append(
        [said("first"), *map(said, "x" * LONG), CondensationAction(forgotten_event_ids=[3])]
    )
    view = Histories(first.store)["c1"].view()
    second.erase("c1", reason="asked for")
    second.create("c1", replace_erased=True).append([*map(said, "y" * (LONG + 5))])
    assert (len(view), view[0].id) == (LONG, 0)
    with pytest.raises(ConversationErased):
        list(view.condensations)


def test_an_unbound_object_takes_the_first_conversation(histories):
    empty = histories[0]["c1"]
    assert (empty.version(), len(empty.view()), empty.pop()) == (0, 0, ())
    histories[1]["c1"].append(said("first"))
    late = histories[0]["c1"]
    histories[1].erase("c1", reason="asked for")
    with pytest.raises(ConversationErased):
        late.version()
    new = begun_again(histories[1])
    assert (empty.version(), late.version()) == (4, 4)
    begun_again(histories[1])
    for old in (empty, late, new):
        with pytest.raises(ConversationErased):
            old.version()


def append_late(name, history):
    """Append to a history that a method has bound to an erased conversation. Fail if it is possible."""
    late = history.append(said("late"))
    pytest.fail(f"a history that {name} bound to the erased conversation appended {late!r}")


def test_the_first_call_binds_an_object(histories):
    histories[0]["c1"].append([said("first"), CALL], documents={"state": 1})
    last = ("append_records", "request_condensation", "pop", "retract")
    olds = {"fork at": histories[0]["c1"]}
    olds["fork at"].fork(1, id="an early fork")
    for name in sorted(METHODS, key=lambda name: name in last):
        if name not in ("ask_approval", "begin_child", "condense", "decide", "run", "settle"):
            olds[name] = histories[0]["c1"]
            result = call_method(olds[name], name)
            if name == "continue_in":
                continued = result.session
    for fork in ("a fork", "an early fork", continued):
        histories[1].erase(fork, reason="asked for")
    begun_again(histories[1])
    for name, old in olds.items():
        with pytest.raises(ConversationErased):
            append_late(name, old)


@pytest.mark.parametrize("wrong", [["c1"], 1.5, b"c1"], ids=repr)
def test_ids_are_texts_in_every_operation(recorder, wrong):
    histories = Histories(Store(recorder))
    histories["c1"].append(said("first"))
    store = histories.store
    maintenance = histories.maintenance
    operations = [
        lambda: maintenance.copy_from(store, wrong),
        lambda: maintenance.differences_from(store, wrong),
        lambda: maintenance.verify(wrong),
        lambda: maintenance.rekey(wrong),
        lambda: histories.erase(wrong, reason="asked for"),
        lambda: store.fork("c1", 1, wrong),
        lambda: store.version(wrong),
        lambda: store.conversation(wrong),
    ]
    for operation in operations:
        with pytest.raises(TypeError, match="the id of a conversation must be a text, not"):
            operation()
    assert store.version("c1") == 1


def test_a_cached_view_binds_its_object(histories):
    """Its object asked the database nothing, and appends to no other conversation that took the
    id.
    """
    wrote, looked = (histories[0]["c1"] for _ in range(2))
    wrote.append(said("first"))
    wrote.view()
    wrote.append(said("first, too"))
    assert len(looked.view()) == 2
    new = begun_again(histories[1])
    before = list(new.events())
    with pytest.raises(ConversationErased):
        looked.append(said("late"))
    assert list(new.events()) == before
