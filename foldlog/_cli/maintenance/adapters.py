"""``foldlog adapters``: list the agent runtimes that can keep their conversations in foldlog."""

from __future__ import annotations

from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.options import AsJson
from foldlog._documents import AdapterDocument, AdaptersDocument
from foldlog.adapters._catalog import ADAPTERS

_STYLES = {"tested": "green", "untested": "yellow", "too old": "red", "not installed": "dim"}


def run(as_json: AsJson = False) -> None:
    """List the adapters for agent runtimes, the releases that they were tested with, and the installed ones.

    Install a runtime with the extra of foldlog that is shown.

    Example: foldlog adapters
    """
    terminal.answer(AdaptersDocument(adapters=tuple(map(AdapterDocument.of, ADAPTERS))), _show)


def _show() -> None:
    console = terminal.console()
    for adapter in ADAPTERS:
        console.print(Text.assemble((adapter.module, "bold cyan"), f"  {', '.join(adapter.classes)}"))
        console.print(f"  {adapter.runtime}, extra {adapter.extra}")
        needed = f"  {adapter.distribution} >={adapter.tested[0]}, tested with {' and '.join(adapter.tested)}: "
        state = f"{adapter.state} {adapter.installed or ''}".rstrip()
        console.print(Text.assemble(needed, (state, _STYLES[adapter.state])))
