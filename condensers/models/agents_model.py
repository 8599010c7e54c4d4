"""The agent's own model. A condenser that names no model asks the agent's model. The agent's model
may also request a condensation by calling a tool.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from foldlog._base.json_types import JsonObject
from foldlog.condensers.base import AgentModel, Condenser, Step, Summarizer, setting
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.deadline import STEP_S, within_s
from foldlog.condensers.rolling import RollingCondenser
from foldlog.projections import View

_NAME_ONE = (
    "name a model in one of three places: a table 'llm_config' of the condenser, a table [llm] of"
    " the TOML file, or agent_llm= of foldlog.open or CondenseHandler"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class AskingCondenser(RollingCondenser):
    """A condenser that asks the model ``llm``, or the agent's model if ``llm`` is None."""

    asks_a_model = True

    needs: ClassVar[Literal["function_calling", "response_schema"] | None] = None
    """The feature that the model must support, or None."""

    llm: Summarizer | None = field(kw_only=False)
    fallback: bool = setting(
        True, "whether a digest replaces the summary if the model fails and condensing cannot wait"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needs and self.llm is not None and not getattr(self.llm, f"supports_{self.needs}"):
            raise InvalidCondenser(
                f"the condenser {self.type!r} needs a model that has {self.needs}, but"
                f" {self.llm.model!r} does not have it; use the condenser 'llm', or set"
                f" {self.needs} = true for a model that has it"
            )

    @property
    def timeout_s(self) -> float:
        return getattr(self.llm, "timeout_s", STEP_S)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        with within_s(self.timeout_s):
            return super().step(view, agent_llm)

    def for_agent(self, agent_llm: AgentModel | None) -> Condenser:
        """Return this condenser with the agent's model, unless it names a model. Raises
        ``InvalidCondenser`` if the agent has no model, or a model without ``complete``.
        """
        if self.llm is not None:
            return self
        if agent_llm is None:
            raise InvalidCondenser(
                f"the condenser {self.type!r} names no model and the agent has no model;"
                f" {_NAME_ONE}"
            )
        if not isinstance(agent_llm, Summarizer):
            raise InvalidCondenser(
                f"the condenser {self.type!r} names no model, and the agent's model"
                f" {agent_llm.model!r} cannot be asked: it has no method 'complete'; {_NAME_ONE}"
            )
        return replace(self, llm=agent_llm)


def request_condensation_tool() -> JsonObject:
    """Return a tool, in OpenAI's format, with which a model can request a condensation. The tool
    has no parameters. If the model passes arguments, ignore them.

    If the model calls the tool, append a ``CondensationRequest`` instead of the call, and take
    another step. Because the request replaces the call, the call needs no result.
    """
    return {
        "type": "function",
        "function": {
            "name": "request_condensation",
            "description": (
                "Have the older part of this conversation summarized, to free room in the context."
                " Call this tool when much of the earlier conversation no longer matters for the"
                " rest of the task, or when you lose track of it. You then go on at once, with the"
                " summary and the latest steps."
            ),
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    }
