"""Messages about the work: each by what causes it, compared with the page that lists them."""

import errno
import logging
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import foldlog
from foldlog import Action, CondensationRequest, Message, Retraction, StoreUnavailable
from foldlog._app.cli.keeping_up import Keeper
from foldlog._base import telemetry
from foldlog._reports.audit_follower import Follower
from foldlog.condensers.reply import Reply
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser
from foldlog.errors import StoreRefused
from foldlog.eventstore.recorders.sqlite import log_syncs
from tests.condensers.scripted import Scripted, failed
from tests.ports import free_port
from tests.said import by_turns
from tests.waiting import in_thread, until

PAGE = (Path(__file__).parents[2] / "docs/OBSERVING.md").read_text()
LISTED = {
    name: (level, set(re.findall(r"`(\w+)`", values)))
    for name, level, values in re.findall(
        r"^\| `(foldlog\.[\w.]+)` \| (INFO|WARNING) \| (.*?) \|", PAGE, re.MULTILINE
    )
}
SECRET = "hunter2"
OF_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def messages(count):
    return by_turns(count, SECRET)


def summarizing(model):
    return LLMSummarizingCondenser(model, max_size=10, keep_first=1)


def opened(path, *answers, meanwhile=lambda history: None):
    """Open histories that are condensed with these answers of a model. ``meanwhile`` gets the
    history while the model is asked.
    """
    model = Scripted(*answers, meanwhile=lambda: meanwhile(histories["c1"]))
    histories = foldlog.open(path / "s.db", condenser=summarizing(model))
    return histories


def condense(histories):
    histories["c1"].append(messages(11))
    histories["c1"].prepare()


def make_condensation(path):
    with opened(path, "short") as histories:
        condense(histories)


def model_failed(path):
    with opened(path, failed("timeout", SECRET)) as histories:
        condense(histories)


def declined(path):
    with foldlog.open(path / "s.db") as histories:
        histories["c1"].append(foldlog.Action(tool=SECRET))  # a call that waits stays
        histories["c1"].request_condensation(SECRET)
        histories["c1"].prepare()


def above_size(path):
    with foldlog.open(
        path / "s.db", condenser={"type": "digest", "max_size": 4, "keep_first": 0}
    ) as histories:
        # they stay whole
        parallel = [foldlog.Action(tool=SECRET, call_id=str(n), response_id="r") for n in range(9)]
        histories["c1"].append(parallel)
        histories["c1"].prepare()


def dropped(path):
    taken_back = iter([True])

    def meanwhile(history):
        if next(taken_back, False):
            history.append(Retraction(version=9))

    with opened(path, "short", meanwhile=meanwhile) as histories:
        condense(histories)


def append_while_another_appends(histories, others):
    """Append to ``others`` while an append to ``histories`` holds the store for half a second."""
    begun = threading.Event()
    go_on = threading.Event()
    histories["c1"].append(messages(1))

    def slow(reading):
        begun.set()
        assert go_on.wait(60)

    def append_slowly():
        version = foldlog.ANY_VERSION
        histories.store.append("c1", messages(1), expected_version=version, guard=slow)

    def append_too():
        others["c1"].append(messages(1))

    recorder = others.store.database.recorder
    with in_thread(append_slowly, go_on.set):
        assert begun.wait(60)
        with in_thread(append_too, go_on.set) as second:
            # on a busy machine the thread comes late
            until(lambda: recorder._queue._waiting or recorder._writing._lock._pending)
            second.join(0.5)


def waited(path):
    with foldlog.open(path / "s.db") as histories, foldlog.open(path / "s.db") as others:
        append_while_another_appends(histories, others)


def waited_for_a_thread(path):
    with foldlog.open(path / "s.db") as histories:
        append_while_another_appends(histories, histories)


def away(path):
    url = f"postgresql://agent:{SECRET}@127.0.0.1:{free_port()}/history?patience_s=1"
    with suppress(StoreUnavailable):
        foldlog.open(url)


class NeverReads:
    position = 0

    def refresh(self):
        pass

    catch_up = refresh


def keeper_behind(*arguments):
    with foldlog.open("memory:", search_index=True) as histories:
        histories.store.close()
        ends_after_one_round = threading.Event()
        ends_after_one_round.wait = lambda wait_s: ends_after_one_round.set()
        keeper = Keeper(histories.store)
        keeper._is_ending = ends_after_one_round
        keeper.run()


def behind(path):
    with foldlog.open(path / "s.db") as histories:
        histories["c1"].append(messages(1))
        with suppress(ZeroDivisionError):
            Follower(histories.store, NeverReads()).run(0.01, lambda: 1 / 0)


def finding(path):
    with foldlog.open(path / "s.db") as histories:
        foreign = {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "x", "toolName": SECRET}],
        }
        histories["c1"].append_records([foreign], format="openai-chat")


def tools_unknown(path):
    condenser = LLMSummarizingCondenser(Scripted(), prompt="continue", max_size=10)
    with foldlog.open(path / "s.db", condenser=condenser) as histories:
        history = histories["c1"]
        history.append([*messages(20), Action(tool=SECRET, call_id="x"), CondensationRequest()])
        history.append(Message(source="agent", content=SECRET))
        history.append(messages(1))
        history.prepare()


def keys_ignored(path):
    table = {
        "model": "m",
        "api_key": SECRET,
        "caching_prompt": SECRET,
        "log_completions_folder": SECRET,
        "stream": None,
    }
    foldlog.LLMConfig.model_validate(table)


def not_synced(path):
    with pytest.MonkeyPatch.context() as patch, foldlog.open(path / "s.db") as histories:
        patch.setattr(log_syncs, "sync", raise_full)
        recorder = histories.store.database.recorder
        recorder.transact(lambda transaction: transaction.set_value("x", "y"), durable=False)


def raise_full(path):
    raise OSError(errno.ENOSPC, "no space left")


def overtaken(path):
    with foldlog.open(path / "s.db") as histories, histories["c1"].lease():
        block = histories["c1"].lease(worker="other")
        block._other = lambda reader: None  # for it, the time of the first one has ended
        with block:
            pass


def not_given_back(path):
    with suppress(StoreRefused), foldlog.open(path / "s.db") as histories, histories["c1"].lease():
        histories["c1"].append(messages(1))
        histories.close()


def cannot_resume(path):
    with foldlog.open(path / "s.db", keys=foldlog.KeyRing(["11" * 32])) as histories:
        histories["c1"].append(messages(1))
    with foldlog.open(path / "s.db") as histories:
        assert list(histories.to_resume()) == []


def moved(path):
    with foldlog.open(path / "s.db") as histories:
        histories["c"].append({"role": "user", "content": "hi"})
        (path / "s.db").rename(path / "t.db")


CAUSES = [
    (make_condensation, "foldlog.condensation.made"),
    (model_failed, "foldlog.condensation.failed"),
    (declined, "foldlog.condensation.declined"),
    (above_size, "foldlog.condensation.declined"),
    (dropped, "foldlog.condensation.dropped"),
    (tools_unknown, "foldlog.condensation.tools_unknown"),
    (keys_ignored, "foldlog.model.keys_ignored"),
    (waited, "foldlog.store.waited"),
    (waited_for_a_thread, "foldlog.store.waited"),
    (away, "foldlog.store.away"),
    (moved, "foldlog.store.moved"),
    (not_synced, "foldlog.store.not_synced"),
    (behind, "foldlog.follower.behind"),
    (keeper_behind, "foldlog.keeper.behind"),
    (overtaken, "foldlog.lease.taken_over"),
    (not_given_back, "foldlog.lease.failed"),
    (cannot_resume, "foldlog.resume.finding"),
    (finding, "foldlog.import.finding"),
]


@pytest.mark.parametrize("cause, name", CAUSES, ids=[cause.__name__ for cause, _ in CAUSES])
def test_each_message_has_its_values_and_no_contents(cause, name, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(telemetry, "_LONG_S", 0.01)
    monkeypatch.setattr("foldlog._reports.audit_follower._LAG_MAX_S", -1.0)
    caplog.set_level(logging.INFO, name)  # an example of the documentation may have silenced it
    cause(tmp_path)
    level, values = LISTED[name]
    records = [record for record in caplog.records if record.name == name]
    assert [(record.levelname, vars(record).keys() - OF_RECORD) for record in records] == [
        (level, values)
    ] * len(records)
    assert records
    assert not any(SECRET in f"{record.getMessage()} {vars(record)}" for record in caplog.records)


def test_the_page_lists_the_messages_that_there_are():
    assert LISTED.keys() == telemetry.MESSAGES.keys() == {name for _, name in CAUSES}


def test_without_a_handler_a_message_names_its_sender(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("foldlog.lease.taken_over"), "propagate", False)
    overtaken(tmp_path)
    assert capsys.readouterr().err.startswith(
        "foldlog.lease.taken_over: note: conversation 'c1': 'other' takes over"
    )


def test_ignored_keys_of_a_model_are_named(tmp_path, caplog):
    keys_ignored(tmp_path)
    (record,) = caplog.records
    assert (
        "the model 'm' has keys that foldlog ignores: caching_prompt, log_completions_folder ("
        in record.getMessage()
    )


def test_failure_message_says_where_the_text_is(tmp_path, caplog):
    class Mistaken(Scripted):
        def complete(self, messages, **how):
            return Reply(text=SECRET)

    with foldlog.open(tmp_path / "s.db", condenser=summarizing(Mistaken())) as histories:
        condense(histories)
        *_, newest = histories["c1"].events()
        assert histories["c1"].stats().condensations["llm"].failed == 1
    (record,) = caplog.records
    assert "(bad_reply, TypeError)" in record.getMessage()
    command = "foldlog log c1 --kind annotation --kind condensation"
    assert f"has the error's text ({command})" in record.getMessage()
    assert "missing 1 required keyword-only argument: 'model'" in str(newest)


@pytest.mark.parametrize(
    "cost, suffix", [(0.0024049999999999996, "; cost 0.002405 USD"), (None, ""), (0.0, "")]
)
def test_cost_has_few_digits(caplog, cost, suffix):
    values = {
        "conversation": "c1",
        "condenser": "llm",
        "planned_at": 3,
        "reason": "too late",
        "cost": cost,
    }
    telemetry.tell("foldlog.condensation.dropped", **values)
    [record] = caplog.records
    assert record.getMessage().endswith(f"was given up: too late{suffix}")
    assert record.cost == cost


def test_the_message_of_a_condensation_has_its_figures(tmp_path, caplog):
    caplog.set_level(logging.INFO, "foldlog")
    make_condensation(tmp_path)
    [record] = caplog.records
    assert record.getMessage().startswith(
        "conversation 'c1': condensation 11 by 'llm' (events): 11 events"
    )
    assert (record.condensation, record.cost) == (11, 0.01)
    assert record.tokens_before > record.tokens_after > 0
    assert record.events_before > record.events_after


def test_a_log_file_can_hold_a_finding_with_half_a_character(tmp_path):
    handler = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    logger = logging.getLogger("foldlog.import.finding")
    logger.addHandler(handler)
    try:
        telemetry.tell(
            "foldlog.import.finding", of="record 0", finding="names the parent \ud800, é"
        )
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert (tmp_path / "log").read_text("utf-8") == "record 0: names the parent \\ud800, é\n"
