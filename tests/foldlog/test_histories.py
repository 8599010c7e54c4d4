"""The face in Python."""

import json
import pathlib
import re
from datetime import timedelta

import pytest

import foldlog
from foldlog import (
    Action,
    Annotation,
    ConversationErased,
    Message,
    NoCondensationAvailable,
    Observation,
)
from foldlog._formats.conversion import writable_formats
from foldlog.errors import InvalidEvent, NoSuchEvent, NoSuchVersion
from foldlog.eventstore import Origin
from foldlog.formats import decode, encode
from tests.said import said

SAMPLE = pathlib.Path(__file__).parents[2] / "foldlog" / "sample" / "tidewatch.jsonl"


def messages(*texts):
    return [said(text) for text in texts]


def test_options_after_a_bare_path_are_refused_and_no_file_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, url in (
        ("new.db?mode=rwc", r"sqlite:///new\.db\?mode=rwc"),
        ("/srv/a b.db?patience_s=5&mode=ro", r"sqlite:////srv/a%20b\.db\?patience_s=5&mode=ro"),
    ):
        with pytest.raises(foldlog.errors.InvalidOption, match=f"use this URL: {url}$"):
            foldlog.open(path)
    assert list(tmp_path.iterdir()) == []
    # part of the name of a file
    for name in (tmp_path / "new.db?mode=rwc", f"{tmp_path}/new.db?why=rwc"):
        foldlog.open(name).close()
        assert pathlib.Path(name).exists()


def test_a_history_without_events_is_empty_in_every_method(histories):
    history = histories["c1"]
    assert (len(history), history.version(), len(history.view()), history.view().to_messages()) == (
        0,
        0,
        0,
        [],
    )
    assert (len(history.sent()), len(history.sent(0))) == (0, 0)
    assert (
        list(history.events()),
        history.tail(3),
        history.open_calls(),
        history.close_open_calls(),
    ) == (
        [],
        (),
        (),
        (),
    )
    assert (
        len(history.at(0)),
        len(history.prepare()),
        history.pop(),
        history.lifetimes().events,
    ) == (0, 0, (), ())
    assert history.difference(0, 0).entered == ()
    for ask in (lambda: history.at(1), lambda: history.difference(0, 1)):
        with pytest.raises(NoSuchVersion, match="has no version 1; it is at version 0"):
            ask()
    with pytest.raises(NoSuchEvent, match="has no event 0: it is empty"):
        history.why(0)
    with pytest.raises(NoCondensationAvailable, match="has no events"):
        history.condense()
    with pytest.raises(InvalidEvent, match="no action opened a call 'k'; no call is open"):
        history.append_tool_result("k", "done")
    assert "c1" not in histories


def test_an_erased_history_is_an_error_in_every_method(histories):
    history = histories["c1"]
    history.append(messages("one"))
    assert histories.erase("c1", reason="asked").version == 1
    asked = [
        *(
            lambda: history.version(),
            lambda: history.view(),
            lambda: history.at(0),
            lambda: list(history.events()),
        ),
        *(
            lambda: history.tail(1),
            lambda: history.open_calls(),
            history.close_open_calls,
            history.prepare,
            history.condense,
        ),
        *(lambda: history.why(0), lambda: history.difference(0, 0), history.lifetimes, history.pop),
        *(
            lambda: history.append(messages("two")),
            lambda: history.append_tool_result("k", "x"),
            lambda: len(history),
        ),
    ]
    for ask in asked:
        with pytest.raises(ConversationErased):
            ask()
    assert "c1" not in histories


def test_a_tool_may_change_the_arguments_of_a_call_that_it_is_given(histories):
    history, given = histories["c1"], {"command": "ls", "env": {"A": "1"}}
    history.append([*messages("list it"), Action(tool="run", arguments=given, call_id="k")])
    for calls in (history.open_calls, lambda: history.view().open_calls):
        (call,) = calls()
        call.arguments["env"].clear()
        del call.arguments["command"]
        assert [each.arguments for each in calls()] == [{"command": "ls", "env": {"A": "1"}}]
    history.append_tool_result(call, "done")
    assert history.view()[1].arguments == {"command": "ls", "env": {"A": "1"}}
    assert history.view().to_messages("anthropic")[1]["content"][0]["input"] == {
        "command": "ls",
        "env": {"A": "1"},
    }


@pytest.mark.parametrize("range", [(-2,), (0, -1)], ids=str)
def test_a_negative_end_of_a_range_is_refused(histories, range):
    histories["c1"].append(messages("one", "two"))
    with pytest.raises(
        foldlog.errors.InvalidArgument, match=r"is -[12]; use a whole number from 0 to"
    ):
        histories["c1"].events(*range)


def test_an_open_call_without_an_id_is_named_by_its_event(histories):
    histories["c1"].append([*messages("one"), Action(tool="run", arguments={})])
    with pytest.raises(
        InvalidEvent, match="no action opened a call 'k'; the open calls are event 1; nothing was"
    ):
        histories["c1"].append_tool_result("k", "done")


def test_the_module_has_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = foldlog.nothing
    with pytest.raises(AttributeError, match=r"did you mean 'open'\?"):
        _ = foldlog.opne
    assert set(foldlog.__all__) <= set(dir(foldlog))


def test_a_version_or_an_id_that_is_no_number_is_named(history):
    history.append(messages("one"))
    for ask in (
        lambda: history.at("1"),
        lambda: history.why("1"),
        lambda: history.difference(0, "1"),
    ):
        with pytest.raises(TypeError, match="must be a whole number, not '1'"):
            ask()


def test_histories_are_counted_and_always_true(histories):
    assert (len(histories), bool(histories)) == (0, True)
    # "history or another" is this one
    assert (len(histories["a"]), bool(histories["a"])) == (0, True)
    for name in ("a", "b"):
        histories[name].append(said("hi"))
    histories.erase("a", reason="asked to")
    assert len(histories) == len(list(histories)) == 1
    assert " object at 0x" not in f"{histories!r} {histories['b']!r} {histories.maintenance!r}"


# -- export: the conversation as it stands, and the View
# ---------------------------------------------------------------


def exported(history, format=None, **how):
    """The records of an export, and its notes."""
    notes = []
    return list(history.export(format, **how, notes=notes.append)), notes


def texts(records):
    return [record["content"] for record in records]


def test_an_export_is_the_conversation_as_it_stands():
    said = [Message(source="user", content=text) for text in ("a", "b", "c", "d")]
    lost = "left out: {} taken back by retractions; 'foldlog log ID' shows them"
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        for wrong in (
            lambda: history.export(notes=[]),
            lambda: encode([], "openai-chat", notes=[]),
            lambda: decode([], "openai-chat", findings=[]),
            lambda: histories.import_(".", findings=[]),
        ):
            with pytest.raises(TypeError, match=r"(notes|findings) must be a function.* not \[\]"):
                wrong()
        history.append(said)
        history.retract(2)
        history.append(said[:1])
        fork = history.fork(5, "f")
        fork.append(said[1:2])
        fork.retract(1)
        history.redact(1, reason="asked to", by="me")
        records, notes = exported(history, "openai-chat")
        assert (texts(records), notes[0]) == (["a", "[redacted]", "a"], lost.format("2 events"))
        records, notes = exported(fork, "openai-chat")
        assert (texts(records), notes) == (["a"], [lost.format("4 events")])
        history.retract(4)  # it reverses the first one
        records, notes = exported(history, "openai-chat")
        assert texts(records) == ["a", "[redacted]", "c", "d"]
        assert notes[0] == lost.format("2 events")  # the later message, and the receipt
        assert exported(histories["nobody"]) == ([], [])


def test_branches_of_a_source_are_exported_as_it_wrote_them_and_a_retraction_takes_parts_of_a_record():
    def line(uuid, parent, content, kind="user"):
        return {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "message": {"role": kind, "content": content},
        }

    result = [
        {"type": "tool_result", "tool_use_id": call, "content": f"of {call}"} for call in ("x", "y")
    ]
    calls = [{"type": "tool_use", "id": call, "name": "look", "input": {}} for call in ("x", "y")]
    records = [
        line("1", None, "first"),
        line("2", "1", "left"),
        line("3", "1", calls, "assistant"),
        line("4", "3", result),
    ]
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append_records(records, format="claude-code")
        assert exported(history) == (records, [])
        chat, notes = exported(history, "openai-chat")
        assert [message.get("content") for message in chat] == ["first", None, "of x", "of y"]
        assert notes == ["left out: 1 event taken back by retractions; 'foldlog log ID' shows them"]
        history.retract(history.version() - 1)
        assert exported(history)[0] == records[:3]  # a part of a record is none


def test_the_format_of_an_export_is_that_of_the_first_record_also_after_documents():
    records = [{"role": "user", "content": "a"}]
    with foldlog.open("memory:") as histories:
        for name in ("imported", "own", "documents"):
            histories[name].append((), documents={"state": {}})
        histories["imported"].append_records(records, format="openai-chat")
        histories["own"].append(said("a"))
        exports = {name: exported(histories[name])[0] for name in ("imported", "own", "documents")}
        native = exported(histories["own"], "openhands-v1")[0]
        assert exports == {"imported": records, "own": native, "documents": []}


def test_the_view_is_exported_as_the_messages_that_a_model_is_sent():
    with foldlog.open(
        "memory:", condenser={"type": "observation_masking", "attention_window": 1}
    ) as histories:
        history = histories["c"]
        history.append_records(
            map(json.loads, SAMPLE.read_text().splitlines()), format="openhands-v1"
        )
        sent = history.prepare().to_messages("openai")
        assert "<MASKED>" in str(sent)
        assert list(history.export(view=True)) == sent
        for name in writable_formats():
            *_, last = map(json.dumps, history.export(name, view=True))
            assert "All five things are done" in last, name
        assert list(histories["nobody"].export(view=True)) == []


@pytest.mark.parametrize(
    "format, kept",
    [
        ("openai-chat", ["hm", "ok", "so"]),
        ("anthropic-messages", ["hm", "ok"]),
        ("atif", ["hm", "ok"]),
    ],
)
def test_an_exported_view_has_the_thinking_that_its_format_has_a_place_for(
    format: str, kept: list[str]
):
    thought = [
        {"type": "thinking", "thinking": text, "signature": "s"} for text in ("old", "hm", "ok")
    ]
    reasoning = {"summary": [{"type": "summary_text", "text": "so"}]}
    notes: list[str] = []
    with foldlog.open("memory:", condenser={"type": "clear_thinking", "keep": 2}) as histories:
        history = histories["c"]
        for thinking in ([thought[0]], [thought[1]]):
            history.append(
                [
                    said("a"),
                    Message(source="agent", content="b", thinking=thinking),
                ]
            )
        call = Action(tool="t", call_id="k", thinking=[thought[2]])
        history.append(
            [
                said("a"),
                call,
                Observation(content="c", call_id="k", cause=5),
            ]
        )
        told = {
            "origin": Origin(format="openai-responses", id="rs"),
            "data": reasoning,
            "shown": True,
        }
        history.append(Annotation(name="reasoning", stays_with_next=True, **told))
        history.append(Message(source="agent", content="d"))
        history.prepare()
        written = json.dumps(list(history.export(format, view=True, notes=notes.append)))
    assert [text for text in ("old", "hm", "ok", "so", "cleared") if f'"{text}"' in written] == kept
    assert ("1 item of reasoning" in str(notes)) is ("so" not in kept), notes


@pytest.mark.parametrize("given", [["a"], "user"])
def test_values_without_names_are_refused_with_what_is_expected(histories, given):
    history = histories["c"]
    with pytest.raises(
        foldlog.errors.InvalidArgument, match=r"^documents must be a dict of values by name, not ."
    ):
        history.append(messages("hi"), documents=given)
    for call in (lambda: histories.list(given), lambda: histories.create("c", given)):
        with pytest.raises(
            foldlog.errors.InvalidArgument,
            match=r"^attributes must be a dict of values by name, not .",
        ):
            call()
    with pytest.raises(
        foldlog.errors.InvalidArgument, match=r"^meta must be a dict of values by name, not ."
    ):
        history.append_reply({"role": "assistant", "content": "hi"}, meta=given)
    assert history.version() == 0


WRONG = {
    "append takes one event or chat message, or several, not of type int": lambda history: (
        history.append([*messages("hi"), 5])
    ),
    "a View is made of events, not of 1; ": lambda history: foldlog.View.from_events([1]),
    "a View is made of events, not of {'role': ": (
        lambda history: history.view().then([{"role": "user"}])
    ),
    "the path of a file or a folder, not ['a']": lambda history: history._histories.import_(["a"]),
    "records must be a list": lambda history: history.append_records(None, format="openai-chat"),
    "source must be what foldlog.open": lambda history: history._histories.maintenance.copy_from(
        "s.db"
    ),
    "foldlog.open(URL) returns": lambda history: history._histories.maintenance.differences_from(
        "s.db"
    ),
    "older_than must be a datetime.timedelta": lambda history: history.close_open_calls(
        older_than=5
    ),
    "expected_version is -1; a new conversation has version 0": lambda history: history.append(
        messages("hi"), expected_version=-1
    ),
    "attribute 'share' is 1.5; attributes are a map": lambda history: history.set_attributes(
        user="u", share=1.5
    ),
    "attribute 'tags' is ['a', 1]; attributes are": lambda history: history.set_attributes(
        done=True, tags=["a", 1]
    ),
    "5 is not a map; attributes are": lambda history: history.append(
        messages("hi"), documents={"attributes": 5}
    ),
}


def test_an_argument_of_a_wrong_type_or_value_is_named(histories):
    history = histories["c"]
    history.append(messages("before"))
    for words, call in WRONG.items():
        with pytest.raises(
            (TypeError, foldlog.errors.InvalidArgument, InvalidEvent), match=re.escape(words)
        ):
            call(history)
    assert history.version() == 1


def test_calls_that_will_be_made_are_not_interrupted(histories):
    history = histories["c"]
    history.append(Action(tool="run", arguments={}, call_id="1"))
    with pytest.raises(foldlog.errors.InvalidArgument, match="older_than is -1 day"):
        history.close_open_calls(older_than=timedelta(-1))
    assert [call.call_id for call in history.open_calls()] == ["1"]


def test_histories_are_copied_from_histories(histories):
    histories["c"].append(messages("hi"))
    with foldlog.open("memory:") as copy:
        assert [moved.added for moved in copy.maintenance.copy_from(histories)] == [1]
        assert copy.maintenance.differences_from(histories) == ()
