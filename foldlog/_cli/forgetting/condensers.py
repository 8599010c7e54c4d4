"""``foldlog condensers``: list the strategies."""

from __future__ import annotations

from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.options import AsJson
from foldlog._documents import ParameterDocument, StrategiesDocument, StrategyDocument
from foldlog.condensers import Strategy, list_strategies


def run(as_json: AsJson = False) -> None:
    """List the strategies that a configuration can name, with their parameters. Strategies of installed packages are
    included.

    Example: foldlog condensers
    """
    if as_json:
        terminal.emit(StrategiesDocument(condensers=tuple(map(_document, list_strategies()))))
    else:
        _show(terminal.console(), list_strategies())


def _document(strategy: Strategy) -> StrategyDocument:
    parameters = (
        ParameterDocument.of(parameter, default=to_jsonable_python(parameter.default, fallback=repr))
        for parameter in strategy.parameters
    )
    return StrategyDocument.of(strategy, parameters=tuple(parameters))


def _show(console: Console, strategies: list[Strategy]) -> None:
    for strategy in strategies:
        also = f"  also {', '.join(strategy.aliases)}" if strategy.aliases else ""
        console.print(Text.assemble((strategy.type, "bold cyan"), (also, "dim")))
        terminal.print_indented(console, Text(strategy.description), 2)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        for parameter in strategy.parameters:
            name, kind = (f"    {parameter.name}", "cyan"), parameter.type
            if parameter.required:
                given, kind = Text.assemble(name), f"{kind}, required"
            else:
                given = Text.assemble(name, f" = {parameter.default!r}")
            table.add_row(given, Text.assemble(parameter.description, (f" ({kind})", "dim")))
        if strategy.parameters:
            console.print(table)
        console.print()
    console.print("To try one on a conversation: foldlog compare ID --config FILE")
