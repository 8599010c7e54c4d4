"""Lists say that a call is open as the View says it, on random histories with retractions."""

from hypothesis import given, strategies as st

import foldlog
from foldlog import Action, Message, Observation
from foldlog.projections import Views
from foldlog.projections.units import awaited_positions
from tests.foldlog.imports.imports import figures_of
from tests.how_many import examples

CALL_IDS = st.sampled_from([None, "a", "b"])
RESPONSE_IDS = st.sampled_from([None, "r", "s"])
_call = st.builds(
    Action, tool=st.sampled_from(["run", "pay"]), call_id=CALL_IDS, response_id=RESPONSE_IDS
)
_message = st.builds(
    Message,
    source=st.sampled_from(["user", "agent"]),
    content=st.just("words"),
    meta=st.sampled_from([{}, {"reply": "r"}]),
)
_result = st.tuples(st.just("result"), CALL_IDS, st.none() | st.integers(1, 4))
_retraction = st.tuples(st.just("retract"), st.integers(1, 6))
steps = st.lists(st.one_of(_call, _call, _message, _result, _retraction), min_size=1, max_size=14)


def take(history, step):
    """Append what a step stands for. Its numbers count events backwards."""
    match step:
        case ("retract", back):
            history.retract(max(0, history.version() - back))
        case ("result", call_id, back):
            cause = None if back is None or back > history.version() else history.version() - back
            history.append(Observation(content="done", call_id=call_id, cause=cause))
        case event:
            history.append(event)


@examples(600)
@given(steps, st.sets(st.integers(0, 14)), st.integers(1, 15))
def test_the_state_is_open_call_if_the_view_waits_for_a_call(steps, counted_at, forked_at):
    """``counted_at`` are the steps after which the figures are counted, from those before on."""
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append(Message(source="user", content="begin"))
        for place, step in enumerate(steps):
            take(history, step)
            if place not in counted_at and place < len(steps) - 1:
                continue
            is_open = figures_of(histories.store, "c")["state"] == "open_call"
            assert is_open == ("c" in histories.to_resume())
            assert not is_open or history.open_calls()
        begins = min(forked_at, history.version())
        fork = history.fork(begins, "fork")
        for step in steps:
            take(fork, step)
        view = Views(histories.store).current("fork")
        own = [at for at in awaited_positions(view, view.units) if view[at].id >= begins]
        assert (figures_of(histories.store, "fork")["state"] == "open_call") == bool(own)
