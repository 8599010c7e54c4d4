"""A condenser from its configuration, and its metadata."""

from types import SimpleNamespace

from foldlog.condensers import (
    CONDENSER_METADATA_KEY,
    CONDENSER_REGISTRY,
    AmortizedForgettingCondenserConfig,
    BrowserOutputCondenserConfig,
    Condensation,
    Condenser,
    ConversationWindowCondenserConfig,
    NoOpCondenserConfig,
    ObservationMaskingCondenserConfig,
    PipelineCondenserConfig,
    RecentEventsCondenserConfig,
    get_condensation_metadata,
)
from foldlog.eventstore import Message
from foldlog.projections import View

for config in (
    NoOpCondenserConfig(type="noop"),
    ObservationMaskingCondenserConfig(type="observation_masking", attention_window=3),
    BrowserOutputCondenserConfig(type="browser_output", attention_window=1),
    RecentEventsCondenserConfig(type="recent_events", keep_first=1, max_events=10),
    AmortizedForgettingCondenserConfig(type="amortized_forgetting", max_size=20, keep_first=1),
    ConversationWindowCondenserConfig(type="conversation_window"),
    PipelineCondenserConfig(
        type="pipeline", condensers=[NoOpCondenserConfig(), RecentEventsCondenserConfig()]
    ),
):
    condenser = Condenser.from_config(config)
    assert type(condenser) is CONDENSER_REGISTRY[type(config)]
    state = SimpleNamespace(
        history=[Message(source="user", content=str(n)) for n in range(30)], extra_data={}
    )
    result = condenser.condensed_history(state)
    assert isinstance(result, View | Condensation)


class Counting(Condenser):
    def condense(self, view):
        self.add_metadata("length", len(view))
        return view


counting = Counting()
state = SimpleNamespace(history=[], extra_data={})
for _ in range(2):
    state.history.append(Message(source="user", content="more"))
    counting.condensed_history(state)
assert (
    get_condensation_metadata(state)
    == [{"length": 1}, {"length": 2}]
    == state.extra_data[CONDENSER_METADATA_KEY]
)
with counting.metadata_batch(state):
    counting.condense(View.from_events(state.history))
assert len(get_condensation_metadata(state)) == 3

for wrong in ({"type": "unknown"}, {"type": "recent", "max_event": 3}):
    try:
        Condenser.from_config(wrong)
    except ValueError:
        pass
    else:
        raise AssertionError("it is refused")
