"""Use the agent's own model if a condenser's configuration names none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from foldlog.condensers.base import AgentModel, Condenser, Reply, Summarizer
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.client import LLM
from foldlog.condensers.rolling import RollingCondenser

_NAME_ONE = (
    "name a model in one of three places: a table 'llm_config' of the condenser, a table [llm] of the TOML file, "
    "or agent_llm= of foldlog.open or CondenseHandler"
)


@dataclass(frozen=True, slots=True)
class AgentsModel:
    """The place of the agent's model until that is known. A call raises ``InvalidCondenser``."""

    model: str = "the agent's model"
    supports_function_calling: bool = True
    supports_response_schema: bool = True

    def complete(self, *messages: Any, **how: Any) -> Reply:
        raise InvalidCondenser(f"the condenser names no model; {_NAME_ONE}")


AGENTS_MODEL: Final = AgentsModel()


@dataclass(frozen=True, kw_only=True, eq=False)
class AskingCondenser(RollingCondenser):
    """A condenser that asks the model ``llm``. ``AGENTS_MODEL`` stands for that of the agent."""

    asks_a_model = True

    llm: Summarizer = field(kw_only=False)

    def for_agent(self, agent_llm: AgentModel | None) -> Condenser:
        if not isinstance(self.llm, AgentsModel):
            return self
        if agent_llm is None:
            raise InvalidCondenser(f"the condenser {self.type!r} names no model and the agent has none; {_NAME_ONE}")
        if not isinstance(agent_llm, Summarizer):
            raise InvalidCondenser(
                f"the condenser {self.type!r} names no model, and the agent's model {agent_llm.model!r} cannot be "
                f"asked: it has no method 'complete'; {_NAME_ONE}"
            )
        return replace(self, llm=agent_llm.without_prompt_caching() if isinstance(agent_llm, LLM) else agent_llm)
