"""A strategy of one's own beside a model's summary, configured by TOML."""

import tomllib
from types import SimpleNamespace
from typing import Literal

from pydantic import BaseModel, Field

from foldlog.condensers import (
    Condensation,
    Condenser,
    LLMConfig,
    LLMSummarizingCondenser,
    PipelineCondenser,
    RollingCondenser,
    condenser_config_from_toml_section,
)
from foldlog.eventstore import CondensationAction, Message
from foldlog.projections import View


class DropOldestConfig(BaseModel):
    type: Literal["drop_oldest"] = Field("drop_oldest")
    max_size: int = Field(default=100, ge=2)

    model_config = {"extra": "forbid"}


class DropOldestCondenser(RollingCondenser):
    def __init__(self, max_size: int = 100):
        self.max_size = max_size
        super().__init__()

    def should_condense(self, view: View) -> bool:
        return len(view) > self.max_size

    def get_condensation(self, view: View) -> Condensation:
        self.add_metadata("dropped", self.max_size // 2)
        forgotten = view[: self.max_size // 2]
        return Condensation(
            action=CondensationAction(
                forgotten_events_start_id=forgotten[0].id, forgotten_events_end_id=forgotten[-1].id
            )
        )

    @classmethod
    def from_config(cls, config: DropOldestConfig) -> "DropOldestCondenser":
        return DropOldestCondenser(max_size=config.max_size)


DropOldestCondenser.register_config(DropOldestConfig)
try:
    DropOldestCondenser.register_config(DropOldestConfig)
except ValueError:
    pass
else:
    raise AssertionError("it is registered twice")

document = tomllib.loads("""
[condenser]
type = "pipeline"

[[condenser.condensers]]
type = "drop_oldest"
max_size = 10

[[condenser.condensers]]
type = "llm"
llm_config = "summarizer"
keep_first = 2
max_size = 100

[llm.summarizer]
model = "openai/gpt-4o-mini"
api_key = "none"
""")
models = {name: LLMConfig(**table) for name, table in document["llm"].items()}
config = condenser_config_from_toml_section(document["condenser"], models)["condenser"]
condenser = Condenser.from_config(config)
assert isinstance(condenser, PipelineCondenser)
first, second = condenser.condensers
assert isinstance(first, DropOldestCondenser)
assert isinstance(second, LLMSummarizingCondenser)
assert condenser.handles_condensation_requests()

state = SimpleNamespace(
    history=[Message(source="user", content=str(n)) for n in range(11)], extra_data={}
)
match condenser.condensed_history(state):
    case Condensation(action=action):
        state.history.append(action)
    case View():
        raise AssertionError("a condensation was due")
assert [event.id for event in View.from_events(state.history)] == [5, 6, 7, 8, 9, 10]
assert isinstance(condenser.condensed_history(state), View)

try:
    LLMSummarizingCondenser(llm=second.llm, max_size=10, keep_first=4)
except ValueError:
    pass
else:
    raise AssertionError("the head leaves no room")
