"""An agent's step, with a stored history in the place of the state."""

import foldlog
from foldlog.condensers import Condensation, RecentEventsCondenser
from foldlog.eventstore import Message
from foldlog.projections import View

with foldlog.open("memory:") as histories:
    history = histories["c1"]
    history.append([Message(source="user", content=f"note {number}") for number in range(30)])
    match RecentEventsCondenser(keep_first=2, max_events=10).condensed_history(history):
        case View() as view:
            assert [event.id for event in view] == [0, 1, *range(22, 30)]
        case Condensation():
            raise AssertionError("it only hides")
