"""The handler: what it appends, what it does when others append meanwhile, and that it holds up
nobody.
"""

from __future__ import annotations

import threading

import pytest

from foldlog._reports.as_sent import sent
from foldlog.condensers.base import Condensation, Condenser, Step
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.reports import reports_of
from foldlog.condensers.strategies.forgetting import AmortizedForgettingCondenser
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.condensers.strategies.showing import (
    NoOpCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
)
from foldlog.eventstore import (
    ANY_VERSION,
    Annotation,
    CondensationAction,
    ConversationNotFound,
    open_store,
)
from foldlog.eventstore.inside import Generation
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.projections import View, Views
from tests.at_once import at_once
from tests.condensers.made import REQUEST, answer, call, condensed, message, messages, pair
from tests.condensers.scripted import Characters, Scripted, failed, said
from tests.said import ids

on_disk_too = pytest.mark.parametrize("store", ["memory:", "sqlite"], indirect=True)


@pytest.fixture
def store(request, tmp_path):
    on_disk = getattr(request, "param", None) == "sqlite"
    with open_store(f"sqlite:///{tmp_path}/histories.db" if on_disk else "memory:") as opened:
        yield opened


@pytest.fixture
def views(store):
    views = Views(store)
    store.register(views)
    return views


def begin(store, *events):
    flat = [event for part in events for event in (part if isinstance(part, list) else [part])]
    store.append("c1", flat, expected_version=0)


def meanwhile(store, *events):
    return lambda: store.append("c1", events, expected_version=ANY_VERSION)


def llm(*answers, once=lambda: None, **parameters):
    """``once`` happens while the model is asked for the first time."""
    happened = threading.Event()

    def happen():
        if not happened.is_set():
            happened.set()
            once()

    return LLMSummarizingCondenser(
        Scripted(*(answers or ("NEW",)), meanwhile=happen),
        **{"max_size": 10, "keep_first": 1, **parameters},
    )


def stored(store, kind):
    return [event for event in store.events("c1") if isinstance(event, kind)]


# --- what it appends ---


@on_disk_too
def test_a_condensation_is_appended_and_the_next_step_goes_on(store, views):
    begin(store, messages(11))
    handler = CondenseHandler(store, views, llm())
    match handler.handle("c1"):
        case Condensation(action=action):
            assert action == stored(store, CondensationAction)[0]
            assert action.id == 11
        case View():
            pytest.fail("a condensation was due")
    match handler.handle("c1"):
        case View() as view:
            assert ids(view) == [0, -13, 8, 9, 10]
        case Condensation():
            pytest.fail("nothing was due")


def test_an_unknown_conversation_is_an_error(store, views):
    with pytest.raises(ConversationNotFound):
        CondenseHandler(store, views, NoOpCondenser()).handle("c1")


def test_the_agents_model_is_what_must_have_room(store, views):
    begin(store, messages(11))
    condenser = llm(max_size=1000)
    assert isinstance(
        CondenseHandler(store, views, condenser, Characters(60)).handle("c1"), Condensation
    )
    assert isinstance(CondenseHandler(store, views, condenser).handle("c1"), View)


def test_a_failed_model_call_is_reported_and_costs_nothing_else(store, views):
    begin(store, messages(11))
    view = CondenseHandler(store, views, llm(failed())).handle("c1")
    assert len(view) == 11
    assert view.version == store.version("c1") == 12, "the View is of after the report"
    assert [reports_of(note)[0]["failure"] for note in stored(store, Annotation)] == ["refused"]


# --- what it does not do again at every step ---


def asked_at(store, handler, condenser, events):
    """The versions at which the model was asked, while so many events arrive one at a time."""
    versions = []
    for n in range(events):
        before = len(condenser.llm.calls)
        view = handler.handle("c1")
        assert isinstance(view, View)
        if len(condenser.llm.calls) > before:
            versions.append(view.version - 1)
        store.append("c1", message(f"more {n}", "agent"), expected_version=ANY_VERSION)
    return versions


def test_a_model_that_failed_is_asked_again_after_ever_more_events_where_condensing_can_wait(
    store, views
):
    begin(store, messages(11))
    condenser = llm(failed(), max_size=10)
    handler = CondenseHandler(store, views, condenser)
    assert asked_at(store, handler, condenser, 160) == [11, 21, 41, 81, 161], (
        "10, 20, 40 and 80 later"
    )
    assert len(stored(store, Annotation)) == 5


@pytest.mark.parametrize("reply", [None, said("cut o", finish_reason="length"), "x" * 10_000])
def test_a_reply_that_was_paid_for_in_vain_is_waited_after_too(store, views, reply):
    begin(store, messages(11))
    condenser = llm(reply)
    assert (
        len(asked_at(store, CondenseHandler(store, views, condenser, Characters()), condenser, 5))
        == 1
    )


def test_a_condensation_that_must_be_is_not_waited_with(store, views):
    begin(store, messages(11))
    condenser = llm(failed(), "NEW")
    handler = CondenseHandler(store, views, condenser)
    assert isinstance(handler.handle("c1"), View)
    assert isinstance(handler.handle("c1"), View)
    assert len(condenser.llm.calls) == 1
    store.append("c1", REQUEST, expected_version=ANY_VERSION)
    assert isinstance(handler.handle("c1"), Condensation)


def test_after_a_condensation_the_next_failure_is_a_first_one(store, views):
    begin(store, messages(11))
    condenser = llm(failed(), failed(), "NEW", failed())
    handler = CondenseHandler(store, views, condenser)
    assert asked_at(store, handler, condenser, 12) == [11, 21]
    store.append("c1", REQUEST, expected_version=ANY_VERSION)
    assert isinstance(handler.handle("c1"), Condensation)
    store.append("c1", messages(11), expected_version=ANY_VERSION)
    first, second = asked_at(store, handler, condenser, 12)
    assert second == first + 10


def test_a_conversation_that_took_the_id_of_an_erased_one_is_not_made_to_wait(store, views):
    handler = CondenseHandler(store, views, llm(failed(), "NEW"))
    old, new = Generation(), Generation(replaces_erased=True)
    store.append("c1", messages(11), expected_version=ANY_VERSION, generation=old)
    assert isinstance(handler.handle("c1", old), View)
    erase(store, "c1", reason="asked for")
    store.append("c1", messages(11), expected_version=ANY_VERSION, generation=new)
    assert isinstance(handler.handle("c1", new), Condensation)


def test_a_handler_remembers_of_the_latest_conversations_alone(store, views, monkeypatch):
    monkeypatch.setattr("foldlog.condensers.handler._CONVERSATIONS_REMEMBERED", 3)
    condenser = llm(failed())
    handler = CondenseHandler(store, views, condenser)
    for name in ("c1", "c2", "c3", "c3", "c4", "c4", "c3", "c2", "c1"):
        if store.version(name) == 0:
            store.append(name, messages(11), expected_version=0)
        handler.handle(name)
    assert len(condenser.llm.calls) == 5, (
        "once of each, and again of the one that was forgotten for the fourth"
    )


def test_what_needs_no_model_goes_on_while_a_model_is_waited_for(store, views):
    begin(store, messages(11))
    condenser = PipelineCondenser(
        [llm(failed(), max_size=10), AmortizedForgettingCondenser(max_size=12)]
    )
    handler = CondenseHandler(store, views, condenser)
    assert isinstance(handler.handle("c1"), View)
    store.append("c1", messages(2), expected_version=ANY_VERSION)
    match handler.handle("c1"):
        case Condensation(action=action):
            assert action.metadata["condenser"] == "amortized_forgetting"
        case View():
            pytest.fail("the second of them was due")


def test_a_mask_is_recorded_when_it_begins_and_not_at_every_step(store, views):
    begin(store, pair(1), pair(2))
    handler = CondenseHandler(store, views, ObservationMaskingCondenser(1))
    for n in range(3, 20):
        view = handler.handle("c1")
        assert view[1].content == "<MASKED>"
        assert view.version == store.version("c1")
        store.append("c1", pair(n), expected_version=ANY_VERSION)
    (report,) = reports_of(stored(store, Annotation)[0])
    assert (report["condenser"], report["rule"]) == ("observation_masking", {"attention_window": 1})
    assert len(stored(store, Annotation)) == 1


def test_rules_are_recorded_when_they_change_and_where_the_last_ones_are_far_back(store, views):
    begin(store, pair(1), pair(2))
    CondenseHandler(store, views, ObservationMaskingCondenser(1)).handle("c1")
    CondenseHandler(store, views, ObservationMaskingCondenser(1)).handle("c1")
    assert len(stored(store, Annotation)) == 1, "found among the last events"
    both = PipelineCondenser(
        [ObservationMaskingCondenser(1), RecentEventsCondenser(max_events=2, keep_first=0)]
    )
    CondenseHandler(store, views, both).handle("c1")
    assert [
        [report["condenser"] for report in reports_of(note)] for note in stored(store, Annotation)
    ] == [
        ["observation_masking"],
        ["observation_masking", "recent_events"],
    ]
    store.append("c1", messages(60), expected_version=ANY_VERSION)
    CondenseHandler(store, views, both).handle("c1")
    assert len(stored(store, Annotation)) == 3
    handler = CondenseHandler(store, views, NoOpCondenser())
    handler.handle("c1")
    handler.handle("c1")
    assert [len(reports_of(note)) for note in stored(store, Annotation)] == [1, 2, 2, 0], (
        "the rules are over"
    )


def test_rules_are_over_though_the_step_that_ends_them_fails(store, views):
    begin(store, pair(1), pair(2), messages(10), message(source="agent"))
    CondenseHandler(store, views, ObservationMaskingCondenser(1)).handle("c1")
    view = CondenseHandler(store, views, llm(failed(), max_size=10)).handle("c1")
    _, over, failure = stored(store, Annotation)
    assert (reports_of(over), "failure" in reports_of(failure)[0]) == ([], True)
    assert sent(store, "c1", view).sent == view


def test_two_handlers_notice_the_rules_of_each_other(store, views):
    begin(store, pair(1), pair(2))
    masking = CondenseHandler(store, views, ObservationMaskingCondenser(1))
    whole = CondenseHandler(store, views, NoOpCondenser())
    for n, handler in enumerate([whole, masking, whole, whole, masking, masking, whole]):
        view = handler.handle("c1")
        assert sent(store, "c1", views.at("c1", view.version)).sent == view
        if n % 3:
            store.append("c1", messages(n % 3), expected_version=ANY_VERSION)
    assert len(stored(store, Annotation)) == 4


@pytest.mark.parametrize("late", [message(), condensed(0, summary="S", offset=0)])
def test_a_step_is_taken_again_when_events_come_before_its_rules(store, views, late):
    begin(store, messages(11))
    came = []

    class Hiding(RecentEventsCondenser):
        def step(self, view, agent_llm=None):
            came.extend([] if came else store.append("c1", late, expected_version=ANY_VERSION))
            return super().step(view, agent_llm)

    view = CondenseHandler(store, views, Hiding(max_events=4, keep_first=0)).handle("c1")
    assert view.version == store.version("c1")
    assert sent(store, "c1", views.current("c1")).sent == view


def test_a_model_that_was_asked_in_vain_is_not_asked_again_for_events_that_came_meanwhile(
    store, views
):
    begin(store, messages(11))

    class Asking(Condenser):
        def step(self, view, agent_llm=None):
            assert view.version == 11
            store.append("c1", message(), expected_version=ANY_VERSION)
            return Step(view, ({"metrics": {"cost": 1.0}},))

    view = CondenseHandler(store, views, Asking()).handle("c1")
    assert sent(store, "c1", views.at("c1", 11)).sent == view
    assert len(stored(store, Annotation)) == 1


# --- condensers that do what they should not ---


@pytest.mark.parametrize(
    "useless", [condensed(summary="again", offset=0), condensed(2, summary="S", offset=0)]
)
def test_a_condensation_that_forgets_nothing_that_is_shown_is_not_made_for_ever(
    store, views, useless
):
    begin(store, messages(4), condensed(2), REQUEST)

    class Useless(Condenser):
        type = "useless"

        def condense(self, view, agent_llm=None):
            return Condensation(useless)

    handler = CondenseHandler(store, views, Useless())
    with pytest.raises(
        NoCondensationAvailable, match="the condensation names 0 of the View's 3 events"
    ):
        handler.handle("c1")
    assert [action.metadata.get("outcome") for action in stored(store, CondensationAction)] == [
        None,
        "declined",
    ]


# --- what cannot be met ---


def test_a_prompt_that_can_never_fit_is_declined_once_and_told_each_time(store, views):
    begin(store, message("x" * 100))
    store.append("c1", condensed(0, summary="y" * 100, offset=0), expected_version=1)
    handler = CondenseHandler(store, views, llm(), Characters(60))
    for _ in range(3):
        with pytest.raises(NoCondensationAvailable):
            handler.handle("c1")
    assert [action.metadata.get("outcome") for action in stored(store, CondensationAction)] == [
        None,
        "declined",
    ]


def test_a_request_that_another_condensation_answered_is_not_declined(store, views):
    begin(store, messages(11), REQUEST)
    answers = meanwhile(store, condensed(1, 2, 3))
    handler = CondenseHandler(store, views, llm(failed("rejected"), once=answers))
    assert isinstance(handler.handle("c1"), View)
    assert len(stored(store, CondensationAction)) == 1
    (paid,) = stored(store, Annotation)
    assert [(each["condenser"], each.get("failure")) for each in reports_of(paid)] == [
        ("llm", "rejected"),
        ("llm", None),
    ]
    assert reports_of(paid)[-1]["outcome"] == "dropped"


@on_disk_too
def test_a_plan_that_still_holds_is_appended_and_not_paid_for_twice(store, views):
    begin(store, messages(11))
    condenser = llm(once=meanwhile(store, *pair(1), message("more")))
    match CondenseHandler(store, views, condenser).handle("c1"):
        case Condensation(action=action):
            assert action.id == 14
            assert action.metadata["planned_at"] == 11
    assert len(condenser.llm.calls) == 1
    assert ids(views.current("c1")) == [0, -16, 8, 9, 10, 11, 12, 13]


def test_a_plan_that_another_condensation_outdated_is_dropped_and_reported(store, views):
    begin(store, messages(11))
    condenser = llm(once=meanwhile(store, condensed(1, 2, 3)))
    view = CondenseHandler(store, views, condenser).handle("c1")
    assert ids(view) == [0, *range(4, 11)]
    assert len(stored(store, CondensationAction)) == 1
    call_paid, dropped = reports_of(stored(store, Annotation)[0])
    assert call_paid["metrics"]["cost"] == 0.01
    assert (dropped["outcome"], dropped["planned_at"]) == ("dropped", 11)
    assert dropped["problem"] == "condensation 11 was appended first"


def test_a_dropped_plan_reports_what_was_spent_and_not_once_more_what_is_masked(store, views):
    begin(store, pair(1), messages(9), message("so", "agent"))
    condenser = PipelineCondenser(
        [ObservationMaskingCondenser(1), llm(once=meanwhile(store, condensed(2, 3, 4)))]
    )
    CondenseHandler(store, views, condenser).handle("c1")
    dropped, masked = (reports_of(note) for note in stored(store, Annotation))
    assert ["rule" in report for report in dropped] == [False, False]
    assert ["rule" in report for report in masked] == [True]


def test_a_plan_that_would_part_an_answer_from_its_call_is_dropped_and_made_anew(store, views):
    begin(store, message(), call(call_id="late"), messages(9), message("so", "agent"))
    condenser = llm(once=meanwhile(store, answer("at last", "late"), message("I see", "agent")))
    assert isinstance(CondenseHandler(store, views, condenser).handle("c1"), Condensation)
    assert "separated" in reports_of(stored(store, Annotation)[0])[-1]["problem"]
    assert len(condenser.llm.calls) == 2
    view = views.current("c1")
    assert not view.left_behind
    assert ("late" in str(view.to_messages())) == (1 in ids(view))


@pytest.mark.parametrize(
    "times, says, problems",
    [
        (3, [], []),
        (50, [], []),
        (2, [messages(3), condensed(1, 2, 3)], ["condensation 14 was appended first"]),
    ],
)
def test_an_agent_that_never_pauses_does_not_keep_a_plan_from_being_appended(
    store, views, times, says, problems
):
    begin(store, messages(11))
    handler = CondenseHandler(
        Busy(store, times, says), views, AmortizedForgettingCondenser(max_size=10)
    )
    assert isinstance(handler.handle("c1"), Condensation)
    assert [reports_of(note)[-1]["problem"] for note in stored(store, Annotation)] == problems
    assert len(stored(store, CondensationAction)) == 1 + len(problems)
    assert not {1, 2, 3} & set(ids(views.current("c1")))


@pytest.mark.parametrize("owner", ["c1", "parent"])
def test_a_plan_that_may_quote_what_was_redacted_meanwhile_is_made_again(store, views, owner):
    store.append(owner, messages(11), expected_version=0)
    if owner != "c1":
        store.fork(owner, 11, "c1")
    condenser = llm(
        "a quote", "NEW", once=lambda: redact(store, owner, 3, reason="asked for", by="me")
    )
    assert isinstance(CondenseHandler(store, views, condenser).handle("c1"), Condensation)
    assert [each.summary for each in stored(store, CondensationAction)] == ["NEW"]


class Busy:
    """A store in which somebody is always a little quicker, so many times."""

    def __init__(self, store, times, says):
        self.store, self.times, self.says = store, times, list(says)

    def append(self, conversation, events, **how):
        if self.times:
            self.times -= 1
            said = self.says.pop(0) if self.says else message("quicker")
            self.store.append(conversation, said, expected_version=ANY_VERSION)
        return self.store.append(conversation, events, **how)

    def __getattr__(self, name):
        return getattr(self.store, name)


@on_disk_too
def test_two_handlers_at_once_never_condense_twice(store, views):
    begin(store, messages(11))
    both_asked = threading.Barrier(2)
    results = []

    def work():
        condenser = llm(once=lambda: both_asked.wait(10))
        results.append(CondenseHandler(store, views, condenser).handle("c1"))

    at_once(lambda _: work(), range(2))
    assert sorted(type(result).__name__ for result in results) == ["Condensation", "View"]
    assert len(stored(store, CondensationAction)) == 1
    assert [reports_of(note)[-1]["outcome"] for note in stored(store, Annotation)] == ["dropped"]


# --- nobody waits ---


@on_disk_too
def test_an_agent_appends_while_a_model_condenses(store, views):
    begin(store, messages(11))
    asked, answered = threading.Event(), threading.Event()

    def think():
        asked.set()
        assert answered.wait(60), "no append waits for the model"

    background = threading.Thread(
        target=CondenseHandler(store, views, llm(once=think)).handle, args=("c1",)
    )
    background.start()
    assert asked.wait(60)
    for _ in range(50):
        store.append("c1", message("meanwhile"), expected_version=ANY_VERSION)
    answered.set()
    background.join()
    assert len(stored(store, CondensationAction)) == 1
