"""The handler appends what a condenser decides, also if others append meanwhile, and delays nobody."""

import logging
import threading

import pytest
from msgspec.structs import replace

from foldlog import Histories
from foldlog.condensers import (
    AmortizedForgettingCondenser,
    Condensation,
    CondenseHandler,
    Condenser,
    DigestCondenser,
    LLMSummarizingCondenser,
    ModelCallFailed,
    NoCondensationAvailable,
    NoOpCondenser,
    ObservationMaskingCondenser,
    PipelineCondenser,
    RecentEventsCondenser,
    Step,
    Usage,
    reports_of,
)
from foldlog.condensers.handler import Remembered
from foldlog.condensers.models.estimate import ESTIMATE, tokens_of
from foldlog.condensers.reports import with_reports
from foldlog.eventstore import (
    ANY_VERSION,
    Annotation,
    CondensationAction,
    open_store,
)
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.store import bind
from foldlog.projections import View, Views
from tests.at_once import at_once
from tests.condensers.made import REQUEST, answer, call, condensed, flat, message, messages, pair
from tests.condensers.scripted import Characters, Scripted, failed, said
from tests.said import ids

on_disk_too = pytest.mark.parametrize("c1", ["memory:", "sqlite"], indirect=True)


class Conversation:
    """The conversation ``c1`` of a store, and handlers for it."""

    def __init__(self, store):
        self.store = store
        self.views = Views(store)
        store.register(self.views)

    def append(self, *events):
        self.store.append("c1", list(flat(*events)), expected_version=ANY_VERSION)

    def handler(self, condenser, agent=None, store=None):
        return CondenseHandler(store or self.store, self.views, condenser, agent)

    def handle(self, condenser, agent=None, store=None):
        return self.handler(condenser, agent, store).handle("c1")

    def view(self):
        return self.views.current("c1")

    def version(self):
        return self.store.version("c1")

    def condensations(self):
        return [event for event in self.store.events("c1") if isinstance(event, CondensationAction)]

    def outcomes(self):
        return [action.metadata.get("outcome") for action in self.condensations()]

    def sent(self, version=None):
        return Histories(self.store)["c1"].sent(version)

    def notes(self):
        """Return the reports of each annotation."""
        events = self.store.events("c1")
        return [reports_of(event) for event in events if isinstance(event, Annotation)]


@pytest.fixture
def c1(request, tmp_path):
    on_disk = getattr(request, "param", None) == "sqlite"
    with open_store(f"sqlite:///{tmp_path}/histories.db" if on_disk else "memory:") as store:
        yield Conversation(store)


@pytest.fixture
def full(c1):
    """The conversation with more events than the condenser ``llm()`` allows."""
    c1.append(messages(11))
    return c1


def llm(*answers, once=lambda: None, **parameters):
    """``once`` happens while the model is asked for the first time."""

    def meanwhile():
        if len(model.calls) == 1:
            once()

    model = Scripted(*answers, meanwhile=meanwhile)
    return LLMSummarizingCondenser(model, **{"max_size": 10, "keep_first": 1, **parameters})


# --- what it appends ---


def test_the_view_must_fit_the_agents_model(full):
    assert isinstance(full.handle(llm(max_size=1_000)), View)
    assert isinstance(full.handle(llm(max_size=1_000), Characters(60)), Condensation)


def test_a_failed_model_call_is_reported(full):
    view = full.handle(llm(failed()))
    assert len(view) == 11
    assert view.version == full.version() == 12, "the View is newer than the report"
    assert [note[0]["failure"] for note in full.notes()] == ["refused"]


# --- what it does not do again at every step ---


def asked_at(c1, handler, model, events):
    """Return the versions at which the model was asked, while so many events come one by one."""
    versions = []
    for n in range(events):
        before = len(model.calls)
        view = handler.handle("c1")
        assert isinstance(view, View)
        if len(model.calls) > before:
            versions.append(view.version - 1)
        c1.append(message(f"more {n}", "agent"))
    return versions


def test_a_failed_model_is_asked_ever_more_rarely(full):
    condenser = llm(failed())
    versions = asked_at(full, full.handler(condenser), condenser.llm, 160)
    assert versions == [11, 31, 71, 151], "a step waits for 20, 40 and 80 events"
    assert len(full.notes()) == 4


@pytest.mark.parametrize("reply", [None, said("cut o", finish_reason="length"), "x" * 10_000])
def test_a_useless_reply_also_delays_the_next_call(full, reply):
    condenser = llm(reply)
    assert len(asked_at(full, full.handler(condenser, Characters()), condenser.llm, 5)) == 1


def test_a_required_condensation_does_not_wait(full):
    condenser = llm(failed(), failed(), "NEW", failed())
    handler = full.handler(condenser)
    assert asked_at(full, handler, condenser.llm, 22) == [11, 31]
    full.append(REQUEST)
    assert isinstance(handler.handle("c1"), Condensation)
    full.append(messages(11))
    first, second = asked_at(full, handler, condenser.llm, 22)
    assert second == first + 20


def test_an_erased_conversation_delays_no_successor(c1):
    handler = c1.handler(llm(failed(), "NEW"))
    results = []
    for _ in range(2):
        _, store = bind(c1.store, "c1", replaces_erased=True)
        store.append("c1", messages(11), expected_version=ANY_VERSION)
        results.append(handler.reading(store, Views(store)).handle("c1"))
        erase(c1.store, "c1", reason="asked for")
    assert [type(result) for result in results] == [View, Condensation]


def test_a_handler_remembers_only_recent_conversations(c1, monkeypatch):
    monkeypatch.setattr("foldlog.condensers.handler._CONVERSATIONS_REMEMBERED", 3)
    condenser = llm(failed())
    handler = c1.handler(condenser)
    for name in ("c1", "c2", "c3", "c4"):
        c1.store.append(name, messages(11), expected_version=0)
    for name in ("c1", "c2", "c3", "c3", "c4", "c4", "c3", "c2", "c1"):
        handler.handle(name)
    assert handler._remembered.cache_info().currsize == 3
    assert len(condenser.llm.calls) == 4, "one call for each conversation: the log has the wait"


def test_a_new_process_waits_as_long_as_the_last_one(full):
    condenser = llm(failed(), max_size=10)
    asked = []
    for new_process in (False, True):
        name = f"c-{new_process}"
        handler = full.handler(condenser)
        full.store.append(name, messages(11), expected_version=0)
        asked.append([])
        for _ in range(100):
            if new_process:
                handler = full.handler(condenser)
            calls = len(condenser.llm.calls)
            handler.handle(name)
            version = full.store.version(name)
            if len(condenser.llm.calls) > calls:
                asked[-1].append(version)
            full.store.append(name, message(), expected_version=version)
    in_one, in_many = asked
    assert in_one == in_many
    assert len(in_one) == 3, "a step waits for 20 and 40 events"


def test_a_model_that_answers_ends_the_wait_in_the_log(full):
    condenser = llm(failed(), "a summary of it all", failed(), failed(), max_size=10)
    full.append(messages(11))
    versions = []
    for _ in range(60):
        calls = len(condenser.llm.calls)
        full.handler(condenser).handle("c1")
        version = full.store.version("c1")
        if len(condenser.llm.calls) > calls:
            versions.append(version)
        full.append([message("done", "agent"), message("go on")])
    first, answered, failed_again, next_one = versions[:4]
    assert answered - first >= 20
    assert 20 <= next_one - failed_again < 40, "after a success, the wait is short again"


def test_parts_without_a_model_do_not_wait(full):
    handler = full.handler(
        PipelineCondenser([llm(failed()), AmortizedForgettingCondenser(max_size=12)])
    )
    assert isinstance(handler.handle("c1"), View)
    full.append(messages(2))
    assert handler.handle("c1").action.metadata["condenser"] == "amortized_forgetting"


# --- the rules of what it hides ---

MASK = ObservationMaskingCondenser(1)


def test_rules_are_recorded_when_they_change(c1):
    c1.append(pair(1), pair(2))
    for n in range(3, 9):
        view = c1.handle(MASK)
        assert view[1].content == "<MASKED>"
        assert view.version == c1.version()
        c1.append(pair(n))
    ((report,),) = c1.notes()
    assert (report["condenser"], report["rule"]) == ("observation_masking", {"attention_window": 1})
    both = PipelineCondenser([MASK, RecentEventsCondenser(max_events=2, keep_first=0)])
    c1.handle(both)
    assert [report["condenser"] for report in c1.notes()[1]] == [
        "observation_masking",
        "recent_events",
    ]
    c1.append(messages(60))
    c1.handle(both)
    for _ in range(2):
        c1.handle(NoOpCondenser())
    assert [len(note) for note in c1.notes()] == [1, 2, 2, 0], "the rules are over"


def test_a_failed_step_also_ends_rules(c1):
    c1.append(pair(1), pair(2), messages(10), message(source="agent"))
    c1.handle(MASK)
    view = c1.handle(llm(failed()))
    _, over, (failure,) = c1.notes()
    assert (over, failure["failure"]) == ([], "refused")
    assert c1.sent(view.version) == view


def test_two_handlers_notice_each_others_rules(c1):
    c1.append(pair(1), pair(2))
    masking = c1.handler(MASK)
    whole = c1.handler(NoOpCondenser())
    for n, handler in enumerate([whole, masking, whole, whole, masking, masking, whole]):
        view = handler.handle("c1")
        assert c1.sent(view.version) == view
        if n % 3:
            c1.append(messages(n % 3))
    assert len(c1.notes()) == 4


@pytest.mark.parametrize("late", [message(), condensed(0, summary="S", offset=0)])
def test_events_before_its_rules_repeat_a_step(full, late):
    came = []

    class Hiding(RecentEventsCondenser):
        def step(self, view, agent_llm=None):
            if not came:
                came.append(late)
                full.append(late)
            return super().step(view, agent_llm)

    view = full.handle(Hiding(max_events=4, keep_first=0))
    assert view.version == full.version()
    assert full.sent() == view


def test_concurrent_events_repeat_no_model_call(full):
    class Asking(Condenser):
        def step(self, view, agent_llm=None):
            assert view.version == 11
            full.append(message())
            return Step(view, ({"metrics": {"cost": 1.0}},))

    view = full.handle(Asking())
    assert full.sent(11) == view
    assert len(full.notes()) == 1


# --- what cannot be met is declined, once ---


class Useless(Condenser):
    """Makes the same condensation again and again."""

    def __init__(self, action):
        self.action = action

    def condense(self, view, agent_llm=None):
        return Condensation(self.action)


@pytest.mark.parametrize(
    "useless", [condensed(summary="again", offset=0), condensed(2, summary="S", offset=0)]
)
def test_a_useless_condensation_is_declined(c1, useless):
    c1.append(messages(4), condensed(2), REQUEST)
    with pytest.raises(
        NoCondensationAvailable, match="the condensation names 0 of the View's 3 events"
    ):
        c1.handle(Useless(useless))
    assert c1.outcomes() == [None, "declined"]


def test_a_prompt_that_cannot_fit_is_declined_once(c1):
    c1.append(message("x" * 100), condensed(0, summary="y" * 100, offset=0))
    handler = c1.handler(llm(), Characters(60))
    for _ in range(3):
        with pytest.raises(NoCondensationAvailable):
            handler.handle("c1")
    assert c1.outcomes() == [None, "declined"]


class Unstable(Scripted):
    """A model that is never there, and takes another time to say so at each call."""

    def __init__(self, **metrics):
        super().__init__()
        self.metrics = metrics

    def complete(self, messages, **how):
        self.calls.append(messages)
        error = failed("unavailable")
        error.report["metrics"] = {"latency_s": len(self.calls), **self.metrics}
        raise error


def stepped(c1, model, steps):
    """Take steps with a handler of their own. The agent goes on between them, as one does whose
    model takes more than it says.
    """
    condenser = LLMSummarizingCondenser(model, max_size=1_000, fallback=False)
    handler = c1.handler(condenser, Characters(60))
    for _ in range(steps):
        with pytest.raises(NoCondensationAvailable, match="boom"):
            handler.handle("c1")
        c1.append(message("more"))


def test_lasting_failures_are_declined_once(full):
    model = Unstable()
    for _ in range(2):
        stepped(full, model, 20)
    assert len(model.calls) == 40
    assert (full.outcomes(), full.notes()) == (["declined"], [])


def test_every_paid_call_is_recorded(full):
    stepped(full, Unstable(usage={"total_tokens": 7}, cost=0.5), 10)
    assert full.outcomes() == ["declined"]
    reports = (report for event in full.store.events("c1") for report in reports_of(event))
    spent = Usage.of(reports)
    assert (spent.attempts, spent.cost) == (10, 5.0)


@pytest.mark.parametrize(
    "event, outcomes",
    [(REQUEST, ["declined", "declined"]), (condensed(1, 2), ["declined", None, "declined"])],
    ids=["request", "condensation"],
)
def test_a_new_request_is_declined_again(full, event, outcomes):
    stepped(full, Unstable(), 2)
    full.append(event)
    stepped(full, Unstable(), 3)
    assert full.outcomes() == outcomes
    assert not full.view().unhandled_condensation_request


def test_an_answered_request_is_not_declined(full):
    full.append(REQUEST)
    answers = llm(failed("rejected"), once=lambda: full.append(condensed(1, 2, 3)))
    assert isinstance(full.handle(answers), View)
    assert len(full.condensations()) == 1
    ((paid, dropped),) = full.notes()
    assert (paid["condenser"], paid["failure"]) == ("llm", "rejected")
    assert (dropped["condenser"], dropped["outcome"]) == ("llm", "dropped")


def test_each_condenser_declines_for_itself(c1):
    c1.append(message("x" * 100), condensed(0, summary="y" * 100, offset=0))
    condensers = [llm(), DigestCondenser(), DigestCondenser(), llm()]
    for condenser in condensers:
        with pytest.raises(NoCondensationAvailable) as declined:
            c1.handle(condenser, Characters(60))
        assert not declined.value.may_go_on, "no request made it necessary"
    names = [action.metadata.get("condenser") for action in c1.condensations()]
    assert names == [None, "llm", "digest", "llm"]


@pytest.mark.parametrize("answer", [condensed(1), condensed(summary="S", offset=0)])
def test_a_request_that_was_answered_meanwhile_is_not_declined(full, answer):
    class Declining(Condenser):
        def step(self, view, agent_llm=None):
            if not view.unhandled_condensation_request:
                return Step(view)
            full.append(answer)
            raise NoCondensationAvailable("there is nothing to forget")

    full.append(REQUEST)
    assert full.handle(Declining()) == full.view()
    assert full.outcomes() == [None]


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("model_fails", [True, False])
def test_an_agent_goes_on_if_only_a_request_is_declined(c1, model_fails, fallback):
    """If a model failed and no digest may take the place of its summary, the agent stops."""
    c1.append(messages(11 if model_fails else 1), REQUEST)
    condenser = llm(failed(), fallback=fallback, max_size=1_000)
    with pytest.raises(NoCondensationAvailable) as declined:
        c1.handle(condenser)  # a digest of these messages would not be shorter than they are
    error = declined.value
    assert (error.model_failed, error.may_go_on) == (model_fails, fallback or not model_fails)


MADE = "foldlog.condensation.made"
DECLINED = "foldlog.condensation.declined"
FAILED = "foldlog.condensation.failed"


def told(caplog, name):
    """Return the values of the only message ``name``, except those of every log record."""
    (record,) = [record for record in caplog.records if record.name == name]
    of_record = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
    values = {key: value for key, value in vars(record).items() if key not in of_record}
    assert values.pop("conversation") == "c1"
    return values


def test_a_condensation_is_told_with_its_effect(full, caplog):
    caplog.set_level(logging.INFO)
    before = full.view()
    full.handle(llm(said("SHORT", usage={"prompt_tokens": 9}, cost=0.25)))
    values = told(caplog, MADE)
    assert values.pop("ms") >= 0
    tokens = [tokens_of(view, ESTIMATE) for view in (before, full.view())]
    assert values == {
        "condensation": 11,
        "condenser": "llm",
        "reason": "events",
        "events_before": 11,
        "events_after": len(full.view()),
        "tokens_before": tokens[0],
        "tokens_after": tokens[1],
        "cost": 0.25,
        "tokens": {"prompt_tokens": 9},
    }
    assert tokens[0] > tokens[1]


def test_a_condensation_that_says_nothing_is_told_all_the_same(full, caplog):
    caplog.set_level(logging.INFO)

    class Silent(Condenser):
        def condense(self, view, agent_llm=None):
            return Condensation(condensed(1, 2)) if len(view) == 11 else view

    before = full.view()
    full.handle(Silent())
    values = told(caplog, MADE)
    assert values.pop("ms") >= 0
    assert values == {
        "condensation": 11,
        "condenser": "Silent",
        "reason": "asked for",
        "events_before": 11,
        "events_after": 9,
        "tokens_before": tokens_of(before, ESTIMATE),
        "tokens_after": tokens_of(full.view(), ESTIMATE),
        "cost": 0.0,
        "tokens": {},
    }


def test_a_condensation_with_counts_is_told_with_them(full, caplog):
    caplog.set_level(logging.INFO)
    metadata = {"tokens_before": 70, "tokens_after": 30}

    class Counting(Condenser):
        def condense(self, view, agent_llm=None):
            return Condensation(replace(condensed(1, 2), metadata=metadata))

    full.handle(Counting())
    values = told(caplog, MADE)
    assert {name: values[name] for name in metadata} == metadata


@pytest.mark.parametrize(
    "condenser, events",
    [(llm(), 1), (llm(failed(), fallback=False), 11)],
    ids=["nothing to forget", "a model that fails"],
)
def test_a_declined_condensation_is_told_with_its_reason(c1, caplog, condenser, events):
    c1.append(messages(events), REQUEST)
    with pytest.raises(NoCondensationAvailable) as declined:
        c1.handle(condenser)
    reason = "its model failed" if events > 1 else str(declined.value)
    values = {"condenser": "llm", "events_before": events, "reason": reason}
    assert told(caplog, DECLINED) == values


def test_the_calls_of_one_summary_are_one_failure(full, caplog):
    large = [message("a word " * 500, "agent" if n % 2 else "user") for n in range(8)]
    full.append(large, message("done", "agent"), REQUEST)
    report = {"failure": "unavailable", "metrics": {"usage": {"total_tokens": 5}, "cost": 0.25}}
    parts = llm(
        failed("context_window"), "so far", ModelCallFailed("m", "unavailable", "x", report)
    )
    full.handle(parts)
    values = told(caplog, FAILED)
    assert len(parts.llm.calls) == 3
    assert {name: values[name] for name in ("failure", "outcome", "attempts", "condenser")} == {
        "failure": "unavailable",
        "outcome": "made a digest instead",
        "attempts": 2,
        "condenser": "llm",
    }


@pytest.mark.parametrize("version, ends", [(0, True), (1, False)])
def test_rules_end_by_themselves_after_many_events(c1, version, ends, monkeypatch):
    """An empty note ends rules that count, and no note is needed behind the last event for which
    they count.
    """
    monkeypatch.setattr("foldlog.condensers.handler.RULES_COUNT_FOR", 20)
    monkeypatch.setattr("foldlog.condensers.reports.RULES_COUNT_FOR", 20)
    c1.append(pair(1), pair(2))
    handler = c1.handler(MASK)
    handler.handle("c1")
    (recorded_at,) = [event.id for event in c1.store.events("c1") if isinstance(event, Annotation)]
    c1.append(messages(recorded_at + 20 + version - c1.version()))
    plain = c1.handler(NoOpCondenser())
    plain.handle("c1")
    assert [len(note) for note in c1.notes()] == [1, 0] if ends else [1]


def test_a_wait_begins_only_where_a_digest_stands_for_a_model():
    notes = Remembered("c1")
    failure = {"failure": "refused"}
    plain = with_reports(condensed(1), [failure])
    instead = replace(plain, metadata={**plain.metadata, "instead_of": "llm"})
    doubtful = replace(plain, metadata={**plain.metadata, "doubtful": True})
    without = replace(condensed(1), metadata={"instead_of": "llm", "doubtful": True})
    paid = with_reports(replace(condensed(1), metadata={"instead_of": "llm"}), [{"metrics": {}}])
    for action in (plain, without, paid):
        assert notes.with_wait(action, 7) is action
    for action in (instead, doubtful):
        waiting = notes.with_wait(action, 7)
        assert reports_of(waiting) == [{**failure, "ask_again_at": 27}]
        assert waiting.forgotten_event_ids == (1,)
    notes.note_condensation(replace(waiting, id=7))
    assert (notes.ask_again_at, notes.after_failure(30)) == (27, 70), "the next wait is longer"
    notes.note_condensation(replace(without, id=28))
    assert (notes.ask_again_at, notes.after_failure(30)) == (27, 70), "the wait goes on"
    notes.note_condensation(plain)
    assert (notes.ask_again_at, notes.after_failure(30)) == (0, 50), "the model answered"


def test_a_report_that_is_on_no_model_begins_no_wait(full):
    class Watchful(LLMSummarizingCondenser):
        def reasons(self, view, agent_llm=None):
            self.add_metadata("looked_at", len(view))
            return super().reasons(view, agent_llm)

    handler = full.handler(Watchful(Scripted(), max_size=13))
    assert isinstance(handler.handle("c1"), View)
    ((report,),) = full.notes()
    assert report["looked_at"] == 11
    assert "ask_again_at" not in report
    full.append(messages(3))
    assert isinstance(handler.handle("c1"), Condensation)


def test_a_failure_without_metrics_begins_a_wait(full):
    class Failing(AmortizedForgettingCondenser):
        def get_condensation(self, view, agent_llm=None):
            raise NoCondensationAvailable("no", ({"failure": "timeout"},))

    assert isinstance(full.handle(Failing(max_size=10)), View)
    ((report,),) = full.notes()
    assert report["ask_again_at"] == 31


# --- others append meanwhile ---


@on_disk_too
def test_a_plan_that_still_holds_is_appended(full):
    condenser = llm(once=lambda: full.append(pair(1), message("more")))
    action = full.handle(condenser).action
    assert (action.id, action.metadata["planned_at"]) == (14, 11)
    assert len(condenser.llm.calls) == 1
    assert ids(full.view()) == [0, -16, 8, 9, 10, 11, 12, 13]


def test_an_outdated_plan_is_reported_with_its_cost(c1):
    c1.append(pair(1), messages(9), message("so", "agent"))
    summarizing = llm(once=lambda: c1.append(condensed(2, 3, 4)))
    view = c1.handle(PipelineCondenser([MASK, summarizing]))
    assert ids(view) == [0, 1, *range(5, 12)]
    assert len(c1.condensations()) == 1
    (paid, dropped), (mask,) = c1.notes()
    assert paid["metrics"]["cost"] == 0.01
    assert (dropped["outcome"], dropped["planned_at"]) == ("dropped", 12)
    assert dropped["problem"] == "condensation 12 was appended first"
    assert "rule" in mask, "the mask is not reported with the dropped plan"


def test_a_plan_never_separates_a_late_result(c1):
    c1.append(message(), call(call_id="late"), messages(9), message("so", "agent"))
    late = [answer("at last", "late"), message("I see", "agent")]
    condenser = llm(once=lambda: c1.append(late))
    assert isinstance(c1.handle(condenser), Condensation)
    assert "appended later" in c1.notes()[0][-1]["problem"]
    assert len(condenser.llm.calls) == 2
    view = c1.view()
    assert not view.left_behind
    assert ("late" in str(view.to_messages())) == (1 in ids(view))


class Busy:
    """A store in which somebody is always a little quicker, so many times."""

    def __init__(self, store, times, says):
        self.store = store
        self.times = times
        self.says = list(says)

    def append(self, conversation, events, **how):
        if self.times:
            self.times -= 1
            quicker = self.says.pop(0) if self.says else message("quicker")
            self.store.append(conversation, quicker, expected_version=ANY_VERSION)
        return self.store.append(conversation, events, **how)

    def __getattr__(self, name):
        return getattr(self.store, name)


@pytest.mark.parametrize(
    "times, says, problems",
    [
        (50, [], []),
        (2, [messages(3), condensed(1, 2, 3)], ["condensation 14 was appended first"]),
    ],
)
def test_a_busy_agent_prevents_no_condensation(full, times, says, problems):
    busy = Busy(full.store, times, says)
    condensation = full.handle(AmortizedForgettingCondenser(max_size=10), store=busy)
    assert isinstance(condensation, Condensation)
    assert [note[-1]["problem"] for note in full.notes()] == problems
    assert len(full.condensations()) == 1 + len(problems)
    assert not {1, 2, 3} & set(ids(full.view()))


@pytest.mark.parametrize("owner", ["c1", "parent"])
def test_a_redaction_outdates_a_plan(c1, owner):
    c1.store.append(owner, messages(11), expected_version=0)
    if owner != "c1":
        c1.store.fork(owner, 11, "c1")
    redacting = llm("a quote", "NEW", once=lambda: redact(c1.store, owner, 3, reason="x", by="me"))
    assert isinstance(c1.handle(redacting), Condensation)
    assert [condensation.summary for condensation in c1.condensations()] == ["NEW"]


@on_disk_too
def test_two_handlers_at_once_never_condense_twice(full):
    both_asked = threading.Barrier(2)
    results = []
    at_once(lambda _: results.append(full.handle(llm(once=lambda: both_asked.wait(60)))), range(2))
    assert sorted(type(result).__name__ for result in results) == ["Condensation", "View"]
    assert len(full.condensations()) == 1
    assert [note[-1]["outcome"] for note in full.notes()] == ["dropped"]


@on_disk_too
def test_an_agent_appends_while_a_model_condenses(full):
    model_called = threading.Event()
    answered = threading.Event()

    def think():
        model_called.set()
        assert answered.wait(60), "no append waits for the model"

    background = threading.Thread(target=full.handle, args=(llm(once=think),))
    background.start()
    assert model_called.wait(60)
    for _ in range(50):
        full.append(message("meanwhile"))
    answered.set()
    background.join()
    assert len(full.condensations()) == 1
