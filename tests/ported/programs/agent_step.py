"""An agent's step, with a state in memory."""

from dataclasses import dataclass, field

from foldlog.condensers import AmortizedForgettingCondenser, Condensation, Condenser
from foldlog.eventstore import CondensationAction, Event, Message
from foldlog.projections import View


@dataclass
class State:
    history: list[Event] = field(default_factory=list)
    extra_data: dict = field(default_factory=dict)


class Agent:
    def __init__(self, condenser: Condenser):
        self.condenser = condenser

    def step(self, state: State) -> Event:
        match self.condenser.condensed_history(state):
            case View() as events:
                return Message(source="agent", content=f"I was shown {len(events)} events.")
            case Condensation() as condensation:
                return condensation.action


agent = Agent(AmortizedForgettingCondenser(max_size=10, keep_first=1))
state = State()
sizes = []
for number in range(30):
    state.history.append(Message(source="user", content=f"task {number}"))
    while isinstance(action := agent.step(state), CondensationAction):
        state.history.append(action)
    state.history.append(action)
    sizes.append(len(View.from_events(state.history)))
assert isinstance(agent.condenser, Condenser)
assert max(sizes) <= 11
assert len(View.from_events(state.history).condensations) > 5
