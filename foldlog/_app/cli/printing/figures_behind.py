"""What figures lack, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command
from foldlog._reports.words.gist import count
from foldlog._reports.words.times import time_words

if TYPE_CHECKING:
    from foldlog._reports.figures.stats import Behind


def say_behind(behind: Behind | None) -> None:
    """Print a note if changes are not counted."""
    if behind is None or not behind.conversations:
        return
    since = "" if behind.as_of is None else f" since {time_words(behind.as_of)}"
    changed = count(behind.conversations, "conversation")
    terminal.note(
        f"changes{since} of up to {changed} are not counted: '{command('store keep-up --once')}'"
        " counts them, and --wait waits for it"
    )
