"""``Histories`` and ``History``, as a Python program uses them."""

import json
import pathlib
import re
from datetime import timedelta
from operator import attrgetter

import pytest
from pydantic import SecretStr

import foldlog
from foldlog import (
    Action,
    Annotation,
    NoCondensationAvailable,
    Observation,
)
from foldlog.errors import InvalidCondenser, InvalidEvent, NoSuchEvent, NoSuchVersion
from foldlog.eventstore import Origin
from foldlog.formats import decode, encode
from tests.foldlog.formats.writing import WRITTEN
from tests.foldlog.records import SAMPLE
from tests.golden.rows import rows
from tests.said import all_said, replied, said


def test_a_store_is_opened_by_url_or_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = "a b?mode=ro#.db"
    for place in ("h.db", "./h.db", tmp_path / "h.db", "sqlite:///h.db", f"{tmp_path}/h.db", odd):
        with foldlog.open(place) as histories:
            histories["c1"].append(said("hi"))
    assert sorted(path.name for path in tmp_path.glob("*.db")) == [odd, "h.db"]
    with foldlog.open("h.db") as histories:
        assert len(histories["c1"]) == 5


@pytest.mark.parametrize(
    "place, options, why",
    rows("refusals.json", "addresses and options of a store, and why they are wrong"),
)
def test_wrong_address_and_options_are_named(tmp_path, monkeypatch, place, options, why):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError), match=why) as caught:
        foldlog.open(place, **options)
    assert isinstance(caught.value, foldlog.EventStoreError | TypeError)
    assert list(tmp_path.iterdir()) == []


def test_keys_compression_and_limit_of_events(tmp_path):
    path = tmp_path / "h.db"
    keys = foldlog.KeyRing([SecretStr("00" * 32)])
    with foldlog.open(path, keys=keys, compression="zlib", event_bytes_max=500) as histories:
        histories["c1"].append(said("a secret"))
        with pytest.raises(InvalidEvent, match="the maximum for one event is 500"):
            histories["c1"].append(said("x" * 600))
    assert b"a secret" not in path.read_bytes()
    with foldlog.open(path) as histories, pytest.raises(foldlog.errors.KeyUnavailable):
        list(histories["c1"].events())
    for same in ("00" * 32, ["00" * 32]):
        with foldlog.open(path, keys=foldlog.KeyRing(same)) as histories:
            assert [event.content for event in histories["c1"].events()] == ["a secret"]


def test_options_after_a_path_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, url in (
        ("new.db?mode=rwc", r"sqlite:///new\.db\?mode=rwc"),
        ("/srv/a b.db?patience_s=5&mode=ro", r"sqlite:////srv/a%20b\.db\?patience_s=5&mode=ro"),
    ):
        with pytest.raises(foldlog.errors.InvalidOption, match=f"use this URL: {url}$"):
            foldlog.open(path)
    assert list(tmp_path.iterdir()) == []
    # In these names, the question mark is part of the name of the file.
    for name in (tmp_path / "new.db?mode=rwc", f"{tmp_path}/new.db?why=rwc"):
        foldlog.open(name).close()
        assert pathlib.Path(name).exists()


def test_empty_history_is_empty_in_every_method(histories):
    history = histories["c1"]
    for empty in (
        history,
        history.view(),
        history.view().to_messages(),
        history.at(0),
        history.sent(),
        history.sent(0),
        history.prepare(),
        history.tail(3),
        history.pop(),
        history.open_calls(),
        history.close_open_calls(),
        history.lifetimes().events,
        history.difference(0, 0).entered,
        [*history.events()],
        [*history.export()],
        [*history.export(view=True)],
    ):
        assert len(empty) == 0
    assert (history.version(), history.dropped()) == (0, None)
    for ask in (lambda: history.at(1), lambda: history.difference(0, 1)):
        with pytest.raises(NoSuchVersion, match="has no version 1; it is at version 0"):
            ask()
    with pytest.raises(NoSuchEvent, match="has no event 0: it is empty"):
        history.why(0)
    with pytest.raises(NoCondensationAvailable, match="has no events"):
        history.condense()
    with pytest.raises(InvalidEvent, match="the View shows no open call 'k'; no call is open"):
        history.append_tool_result("k", "done")
    assert "c1" not in histories


def test_tool_may_change_its_arguments(histories):
    history = histories["c1"]
    arguments = {"command": "ls", "env": {"A": "1"}}
    history.append([*all_said("list it"), Action(tool="run", arguments=arguments, call_id="k")])
    for calls in (history.open_calls, lambda: history.view().open_calls):
        (call,) = calls()
        call.arguments["env"].clear()
        del call.arguments["command"]
        assert [call.arguments for call in calls()] == [{"command": "ls", "env": {"A": "1"}}]
    history.append_tool_result(call, "done")
    assert history.view()[1].arguments == {"command": "ls", "env": {"A": "1"}}
    assert history.view().to_messages("anthropic")[1]["content"][0]["input"] == {
        "command": "ls",
        "env": {"A": "1"},
    }


def test_the_module_has_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = foldlog.nothing
    with pytest.raises(AttributeError, match=r"did you mean 'open'\?"):
        _ = foldlog.opne
    assert set(foldlog.__all__) <= set(dir(foldlog))


def test_histories_are_counted_and_always_true(histories):
    assert (len(histories), bool(histories)) == (0, True)
    # An empty history is true too, so that ``history or another`` is the history.
    assert (len(histories["a"]), bool(histories["a"])) == (0, True)
    for name in ("a", "b"):
        histories[name].append(said("hi"))
    histories.erase("a", reason="asked to")
    assert len(histories) == len(list(histories)) == 1
    assert " object at 0x" not in f"{histories!r} {histories['b']!r} {histories.maintenance!r}"


# -- imports and exports
# ---------------------------------------------------------------


def test_notes_and_findings_must_be_functions(histories):
    for call in (
        lambda: histories["c"].export(notes=[]),
        lambda: encode([], "openai-chat", notes=[]),
        lambda: decode([], "openai-chat", findings=[]),
        lambda: histories.import_(".", findings=[]),
    ):
        with pytest.raises(TypeError, match=r"(notes|findings) must be a function.* not \[\]"):
            call()


def test_import_reports_unreadable_lines(histories, tmp_path):
    messages = [json.dumps({"role": role, "content": "a"}) for role in ("user", "assistant")]
    (tmp_path / "a.jsonl").write_text("\n".join([*messages, "{", *messages]))
    (tmp_path / "b.json").write_text('{"messages": oops')
    findings = []
    histories.import_(tmp_path, findings=findings.append)
    assert "a.jsonl:3" in findings[0]
    assert "b.json" in findings[1]


def test_export_has_the_format_of_the_records(histories):
    records = [{"role": "user", "content": "a"}]
    for name in ("imported", "own", "documents"):
        histories[name].append((), documents={"state": {}})
    histories["imported"].append_records(records, format="openai-chat")
    histories["own"].append(said("a"))
    assert [*histories["imported"].export()] == records
    assert [*histories["own"].export()] == [*histories["own"].export("openhands-v1")] != []
    assert [*histories["documents"].export()] == []
    notes = []
    assert [*histories["documents"].export("openai-chat", notes=notes.append)] == []
    assert notes == ["left out: 1 change of documents, which openai-chat cannot hold"]


def test_later_append_reads_no_records(monkeypatch, histories):
    history = histories["c"]
    record = {"role": "user", "content": "a"}
    history.append_records([record], format="openai-responses")
    queries = []
    monkeypatch.setattr(histories.store.database.recorder, "query", queries.append)
    history.append_records([record], format="openai-responses")
    assert queries == []


def test_misspelled_strategy_is_refused():
    with pytest.raises(InvalidCondenser, match=r"did you mean 'digest'.* end in \.toml"):
        foldlog.open("memory:", condenser="digst")


def test_view_is_exported_as_sent():
    masking = {"type": "observation_masking", "attention_window": 1}
    with foldlog.open("memory:", condenser=masking) as histories:
        history = histories["c"]
        records = map(json.loads, SAMPLE.read_text().splitlines())
        history.append_records(records, format="openhands-v1")
        sent = history.prepare().to_messages("openai")
        assert "<MASKED>" in str(sent)
        assert [*history.export(view=True)] == sent
        for name in WRITTEN:
            *_, last = map(json.dumps, history.export(name, view=True))
            assert "All five things are done" in last, name


@pytest.mark.parametrize(
    "format, kept",
    [
        ("openai-chat", ["hm", "ok", "so"]),
        ("anthropic-messages", ["hm", "ok"]),
        ("atif", ["hm", "ok"]),
    ],
)
def test_exported_view_has_its_thinking(format, kept):
    old, hm, ok = (
        [{"type": "thinking", "thinking": text, "signature": "s"}] for text in ("old", "hm", "ok")
    )
    reasoning = Annotation(
        name="reasoning",
        data={"summary": [{"type": "summary_text", "text": "so"}]},
        origin=Origin(format="openai-responses", id="rs"),
        shown=True,
        stays_with_next=True,
    )
    notes = []
    with foldlog.open("memory:", condenser={"type": "clear_thinking", "keep": 2}) as histories:
        history = histories["c"]
        history.append(
            [
                said("a"),
                replied("b", thinking=old),
                said("a"),
                replied("b", thinking=hm),
                said("a"),
                Action(tool="t", call_id="k", thinking=ok),
                Observation(content="c", call_id="k", cause=5),
                reasoning,
                replied("d"),
            ]
        )
        history.prepare()
        written = json.dumps([*history.export(format, view=True, notes=notes.append)])
    assert [text for text in ("old", "hm", "ok", "so", "cleared") if f'"{text}"' in written] == kept
    assert ("1 item of reasoning" in str(notes)) is ("so" not in kept), notes


@pytest.mark.parametrize(
    "problem, method, arguments, options",
    rows("wrong_arguments.json", "what is said of a method with its arguments and options"),
)
def test_wrong_argument_is_named(histories, problem, method, arguments, options):
    history = histories["c"]
    history.append(Action(tool="run", arguments={}))
    target = history if hasattr(history, method) else histories
    refusals = (TypeError, foldlog.errors.InvalidArgument, InvalidEvent)
    with pytest.raises(refusals, match=re.escape(problem)):
        attrgetter(method)(target)(*arguments, **options)
    assert (history.version(), [*histories]) == (1, ["c"])


def test_name_may_have_half_a_character(histories, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"role": "user", "content": "hi"}')
    (history,) = histories.import_(path, conversation="\ud800")
    histories.erase("\ud800", reason="\ud801")
    with pytest.raises(foldlog.errors.ConversationErased) as refused:
        history.view()
    assert r"\ud800' was erased" in str(refused.value)
    assert r"(\ud801)" in str(refused.value)


def test_view_is_made_of_events(history):
    for wrong in (lambda: foldlog.View.from_events([1]), lambda: history.view().then([{}])):
        with pytest.raises(InvalidEvent, match="a View is made of events, not of"):
            wrong()


def test_open_calls_of_any_age_are_closed(history):
    with pytest.raises(foldlog.errors.InvalidArgument, match="older_than is -1 day"):
        history.close_open_calls(older_than=timedelta(-1))
    assert history.close_open_calls(older_than=timedelta.max) == ()


def test_a_place_in_a_list_has_64_bits(histories):
    with pytest.raises(foldlog.errors.InvalidArgument, match="after is 18446744073709551616"):
        histories.list(after=(2**64, 0))


@pytest.mark.parametrize("age", [True, "5", None])
def test_age_of_a_list_is_a_number(histories, age):
    with pytest.raises(TypeError, match="age_max_s must be a number of seconds"):
        histories.list(age_max_s=age)


@pytest.mark.parametrize("wrong", ["call_1", 0, None])
def test_what_is_no_call_or_request_is_named(histories, wrong):
    history = histories["c"]
    history.append(said("hi"))
    needs_call = "needs a call from history.open_calls"
    with pytest.raises(TypeError, match=f"an approval {needs_call}"):
        history.ask_approval(wrong, to="ann")
    with pytest.raises(TypeError, match=f"begin_child {needs_call}"):
        history.begin_child(wrong)
    if wrong is not None:
        with pytest.raises(TypeError, match=r"request must be what view\.request returned"):
            history.append_reply({"role": "assistant", "content": "yes"}, request=wrong)
    assert history.version() == 1
