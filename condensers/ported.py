"""Adapt classes of condensers when they are defined: abstract methods, and the signatures of the reference."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

_TAKE_A_VIEW = (
    "condense",
    "step",
    "should_condense",
    "reasons",
    "condensation_requirement",
    "get_condensation",
    "hard_context_reset",
)


def abstract(method: Method) -> Method:
    """Make a method abstract until a subclass defines it or its alternative: only at run time, because type checkers
    cannot know which of two methods is defined.
    """
    method.__isabstractmethod__ = True  # type: ignore[attr-defined]
    return method


def accept_agent_llm(condenser_type: type) -> None:
    """Let the methods that the class itself defines as ``method(self, view)`` be called with ``agent_llm`` too."""
    for name in _TAKE_A_VIEW:
        method = vars(condenser_type).get(name)
        if inspect.isfunction(method) and not _takes_a_second(method):
            setattr(condenser_type, name, _without_agent_llm(method))


def _takes_a_second(method: Callable[..., Any]) -> bool:
    """Return whether ``method(self, view, agent_llm)`` can be called."""
    try:
        inspect.signature(method).bind(None, None, None)
    except TypeError:
        return False
    return True


def _without_agent_llm(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, view: Any, agent_llm: Any = None) -> Any:
        return method(self, view)

    return called
