"""``foldlog condensers``: list the strategies."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from foldlog._cli import terminal
from foldlog._cli.options import AsJson
from foldlog._documents import ParameterDocument, StrategiesDocument, StrategyDocument
from foldlog.condensers import Condenser, list_strategies
from foldlog.condensers.config.registry import CONDENSER_REGISTRY, names_of


def run(as_json: AsJson = False) -> None:
    """List the strategies that a configuration can name, with their parameters. Strategies of installed packages are
    included.

    Example: foldlog condensers
    """
    strategies = StrategiesDocument(condensers=tuple(map(strategy_of, list_strategies())))
    terminal.answer(strategies, lambda: _show(strategies.condensers))


def strategy_of(config_type: type[BaseModel]) -> StrategyDocument:
    """Return the strategy of a configuration class, for people."""
    fields, condenser = config_type.model_fields.items(), CONDENSER_REGISTRY[config_type]
    return StrategyDocument(
        type=names_of(config_type)[0],
        aliases=names_of(config_type)[1:],
        description=(config_type.__doc__ or "").strip(),
        handles_requests=condenser.handles_condensation_requests is not Condenser.handles_condensation_requests,
        parameters=tuple(_parameter(name, field) for name, field in fields if name != "type"),
    )


def _parameter(name: str, field: FieldInfo) -> ParameterDocument:
    kind: Any = {"llm_config": "table or name", "condensers": "list of tables"}.get(name) or field.annotation
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return ParameterDocument(
        name=name,
        type=kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", ""),
        required=field.is_required(),
        default=to_jsonable_python(default, fallback=repr),
        description=field.description or "",
    )


def _show(strategies: tuple[StrategyDocument, ...]) -> None:
    for strategy in strategies:
        also = f"  also {', '.join(strategy.aliases)}" if strategy.aliases else ""
        only = "" if strategy.handles_requests else "  not for condense"
        terminal.say((strategy.type, "bold cyan"), (also + only, "dim"), wraps=True)
        terminal.print_indented(2, strategy.description)
        terminal.print_grid(map(_row, strategy.parameters), whole_names=True)
        terminal.say()
    terminal.say("To try one on a conversation: foldlog compare ID --config FILE", wraps=True)


def _row(parameter: ParameterDocument) -> tuple[list[terminal.Span], list[terminal.Span]]:
    name, kind = (f"    {parameter.name}", "cyan"), parameter.type
    if parameter.required:
        return [name], [parameter.description, (f" ({kind}, required)", "dim")]
    return [name, f" = {parameter.default!r}"], [parameter.description, (f" ({kind})", "dim")]
