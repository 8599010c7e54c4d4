"""A tool that pays, for ``tests.adapters.paying``: the SDK finds its classes by their names in a
module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openhands.sdk.tool import (
    Action,
    Observation,
    ToolDefinition,
    ToolExecutor,
    register_tool,
)

import foldlog
from foldlog.adapters.openhands import FoldlogFileStore

BANK: list[Callable[[str], str]] = []
STORE: list[FoldlogFileStore] = []


class PayAction(Action):
    to: str


class PayObservation(Observation):
    pass


class Pay(ToolExecutor):
    @foldlog.effect()
    def __call__(self, action: PayAction, conversation: Any = None) -> PayObservation:
        return PayObservation.from_text(BANK[0](action.to))


class PayTool(ToolDefinition[PayAction, PayObservation]):
    @classmethod
    def create(cls, conv_state: Any = None, **parameters: Any) -> list[PayTool]:
        types = {"action_type": PayAction, "observation_type": PayObservation}
        executor = STORE[0].with_effects(Pay(), PayObservation)
        return [cls(description="Pay somebody.", executor=executor, **types)]


register_tool("pay", PayTool)
