"""A conversation that goes on, step by step, through a store: whatever arrives, what is shown can be sent, whole."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldlog.condensers.base import Condenser
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.strategies.digest import default_condenser
from foldlog.eventstore import ANY_VERSION, Event, Store, open_store
from foldlog.eventstore.events import Action, CondensationRequest, Message, Observation, SystemMessage
from foldlog.projections import View, Views
from tests.condensers.test_laws import agents, asking, condensers
from tests.how_many import examples
from tests.properties.histories import THINKING

IN_A_ROW_MAX = 8
"""So many condensations may follow one another where masks, parts of pipelines and limits each want their own."""

rounds = st.lists(
    st.tuples(st.integers(1, 4), st.booleans(), st.booleans(), st.sampled_from(["nothing", "a word", "a request"])),
    min_size=1,
    max_size=12,
)
"""Each: how many calls a reply of the agent's makes, with thinking or not, whether it is looked at between their
answers, and what comes after them."""


def can_be_sent(messages: list[dict[str, Any]]) -> bool:
    """Whether every call is answered right behind its message, and nothing else is answered."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    return not waiting


def look(store: Store, handler: CondenseHandler) -> None:
    """Steps until there is a View, as an agent does before it calls its model."""
    for _ in range(IN_A_ROW_MAX):
        before = store.version("c1")
        try:
            result = handler.handle("c1")
        except NoCondensationAvailable:
            return
        if isinstance(result, View):
            assert can_be_sent(result.to_messages())
            return
        assert result.action.id >= before
    raise AssertionError(f"{IN_A_ROW_MAX} condensations in a row")


@examples(150)
@given(rounds, st.one_of(condensers, asking, st.builds(default_condenser, max_size=st.just(8))), agents)
def test_what_is_shown_can_be_sent_whatever_arrives_and_condensing_ends(
    rounds: list[tuple[int, bool, bool, str]], condenser: Condenser, agent: Any
) -> None:
    with open_store("memory:") as store:
        views = Views(store)
        store.register(views)
        handler = CondenseHandler(store, views, condenser, agent)
        store.append("c1", [SystemMessage(content="work"), Message(source="user", content="go")], expected_version=0)
        for number, (calls, thinking, looked_at, then) in enumerate(rounds):
            for event in arriving(number, calls, thinking):
                store.append("c1", event, expected_version=ANY_VERSION)
                if looked_at:
                    look(store, handler)
            if then != "nothing":
                word: Event = Message(source="user", content="more") if then == "a word" else CondensationRequest()
                store.append("c1", word, expected_version=ANY_VERSION)
            look(store, handler)
        current = views.current("c1")
        assert not current.unhandled_condensation_request or not condenser.handles_condensation_requests()
        assert current.left_behind == frozenset(), "nothing lost its call or its answers"
        assert current.events == View.from_events(store.events("c1")).events


def arriving(number: int, calls: int, thinking: bool) -> list[Event]:
    """A reply of several calls, and then their answers."""
    ids = [f"call {number} {n}" for n in range(calls)]
    return [
        *(
            Action(
                tool="run",
                call_id=call_id,
                response_id=f"response {number}",
                thinking=THINKING if thinking and call_id == ids[0] else (),
            )
            for call_id in ids
        ),
        *(Observation(content="done " * 5, call_id=call_id) for call_id in ids),
    ]
