"""``foldlog adapters``: list the agent runtimes that can keep their conversations in foldlog."""

from __future__ import annotations

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
    for adapter in ADAPTERS:
        terminal.say((adapter.module, "bold cyan"), f"  {', '.join(adapter.classes)}", wraps=True)
        terminal.say(f"  {adapter.runtime}, extra {adapter.extra}", wraps=True)
        needed = f"  {adapter.distribution} >={adapter.tested[0]}, tested with {' and '.join(adapter.tested)}: "
        state = f"{adapter.state} {adapter.installed or ''}".rstrip()
        terminal.say(needed, (state, _STYLES[adapter.state]), wraps=True)
