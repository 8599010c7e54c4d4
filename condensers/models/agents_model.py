"""Use the agent's own model if a condenser's configuration names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from condensers.base import AgentModel, Condenser, Reply, Summarizer
from condensers.errors import InvalidCondenser
from condensers.models.client import LLM

__all__ = ["AGENTS_MODEL", "AgentsModel", "with_agents_model"]

T = TypeVar("T", bound=Condenser)

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

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        response_schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        raise InvalidCondenser(f"the condenser names no model; {_NAME_ONE}")


AGENTS_MODEL: Final = AgentsModel()


def with_agents_model(condenser: T, agent_llm: AgentModel | None) -> T:
    """Return the condenser with the agent's model, if it uses ``AGENTS_MODEL``; else the condenser itself.

    Raises ``InvalidCondenser`` where there is no such model, or where it cannot be asked.
    """
    if not isinstance(getattr(condenser, "llm", None), AgentsModel):
        return condenser
    if agent_llm is None:
        raise InvalidCondenser(f"the condenser {condenser.type!r} names no model and the agent has none; {_NAME_ONE}")
    if not isinstance(agent_llm, Summarizer):
        raise InvalidCondenser(
            f"the condenser {condenser.type!r} names no model, and the agent's model {agent_llm.model!r} cannot be "
            f"asked: it has no method 'complete'; {_NAME_ONE}"
        )
    asked = agent_llm.without_prompt_caching() if isinstance(agent_llm, LLM) else agent_llm
    return cast("T", replace(cast("Any", condenser), llm=asked))
