"""``foldlog report``: write a conversation as an HTML page in one file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import agent_model_option, named_model
from foldlog._app.cli.options import (
    check_output,
    conversation_argument,
    force_option,
    output_option,
    prices_option,
    store_options,
)
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._app.page.report import write_report
from foldlog._reports.answers.files import ReportDocument
from foldlog._reports.figures.prices import Prices
from foldlog.eventstore.files.written_files import note_file

_NAME_BYTES_MAX = 100
"""File systems limit the bytes of a name, so a name that is made from an id is cut."""


@conversation_argument
@output_option(
    "--output -o",
    show_default="ID.html in this folder",
    help="The file.",
)
@force_option
@agent_model_option
@prices_option
@store_options
def run(
    conversation: str,
    output: Path | None,
    force: bool,
    agent: str | None,
    prices: Path | None,
    db: str,
) -> None:
    """Write a conversation as a page: what the model was shown at every version, what was
    forgotten, and why.

    The page needs no network and contains all texts.

    Example: foldlog report tidewatch --output tidewatch.html
    """
    with open_existing(db) as store, terminal.working("reading", "events") as update:
        conversation = resolve(store, conversation)
        model = named_model(agent)
        path = output or _default_file(conversation, force=force)
        version = store.conversation(conversation).version
        update(total=version)
        limit = None if model is None else model.max_input_tokens
        write = partial(
            write_report, store, conversation, path, limit=limit, model=model, prices=Prices(prices)
        )
        with note_file(store, "report", path, conversation):
            size = write(progress=lambda done: update(completed=done))
    size_text = "written"
    if path.is_file():  # a device has no size
        size_text = f"{size / 1e6:,.2f} MB"
    document = ReportDocument(
        conversation=conversation, version=version, file=str(path), bytes=size
    )
    terminal.answer(document, f"{path}: {size_text}")


def _default_file(conversation: str, *, force: bool) -> Path:
    """Return a file name made of the letters, digits and ``-_.`` of the id."""
    safe_name = "".join(c if c.isalnum() or c in "-_." else "_" for c in conversation)
    name = safe_name.encode()[:_NAME_BYTES_MAX].decode(errors="ignore").lstrip(".")
    path = Path(f"{name or 'report'}.html")
    check_output(path, force=force)
    return path
