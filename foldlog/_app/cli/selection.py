"""Select events of a log by kind and time, and parse the times of options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from foldlog._app.cli.command_line import complete_from, flag, option
from foldlog._app.cli.exit_status import Refused
from foldlog._base.json_types import JsonObject
from foldlog._reports.words.times import happened_at, moment_of
from foldlog.eventstore import Event
from foldlog.projections.conversations.labels import KINDS, WIDER, kind_words, label

kinds_option = option(
    "--kind kinds",
    "KIND",
    f"Only events of this kind. Use the option again for another kind. One of: {', '.join(KINDS)}.",
    multiple=True,
    shell_complete=complete_from(lambda: KINDS),
    show_default="all kinds",
)
since_option = option(
    "--since",
    "TIME",
    "Only events from this time on: 2026-03-01, 2026-03-01T14:30, 2h. Events without a "
    "time are left out.",
)
tool_option = option("--tool", "NAME", "Only calls and results of this tool.")
program_option = option(
    "--program", "FORMAT", "Only conversations in this format, such as claude-code or codex."
)
where_option = option(
    "--where", "NAME=VALUE", "The conversations with these attributes.", multiple=True
)
dry_run_option = flag("--dry-run", "Only say what would be done.")
until_option = option(
    "--until", "TIME", "Only events before this time. A date means 0:00 on this day."
)


class Selection(NamedTuple):
    """Which events of a log are selected. Without kinds, all kinds are."""

    kinds: frozenset[str]
    since: datetime | None = None
    until: datetime | None = None

    @property
    def everything(self) -> bool:
        """Return whether every event is selected."""
        return not self.kinds and self.since is None and self.until is None

    def takes(self, event: Event, recorded_at: datetime) -> bool:
        """Return whether the event is selected. If ``since`` or ``until`` is set, an event without
        a time is not selected.
        """
        if self.kinds:
            kind = label(event)
            if kind not in self.kinds and WIDER.get(kind) not in self.kinds:
                return False
        if self.since is None and self.until is None:
            return True
        at = happened_at(event, recorded_at)
        if at is None:
            return False
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


def selection(
    kinds: Sequence[str] | None = None, *, since: str | None = None, until: str | None = None
) -> Selection:
    """Parse options that select events. Raises ``Refused`` for an unknown kind or a wrong time."""
    try:
        named = kind_words(kinds or ())
    except ValueError as error:
        raise Refused(f"--kind {error}") from error
    return Selection(named, moment_of_option("--since", since), moment_of_option("--until", until))


def moment_of_option(option: str, text: str | None) -> datetime | None:
    """Parse the time of an option: a date, a time, or how long ago. A time is in UTC unless it has
    a zone.

    Raises ``Refused`` for any other text.
    """
    if text is None:
        return None
    try:
        return moment_of(text)
    except ValueError as error:
        raise Refused(
            f"{option} {text!r} is not a time; use a date (2026-03-01), a time (2026-03-01T14:30,"
            " in UTC) or how long ago (90s, 30m: minutes, 2h, 7d, 4w)"
        ) from error


def pairs(texts: Sequence[str], hint: str = "") -> JsonObject:
    """Parse texts ``NAME=VALUE`` into attributes. The value of ``NAME=`` is None. Raises
    ``Refused`` for any other text, with ``hint`` at the end of the message, and for a name that
    comes twice.
    """
    attributes: JsonObject = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Refused(f"{text!r} is not an attribute; write NAME=VALUE, such as user=u1{hint}")
        if name in attributes:
            raise Refused(f"the attribute {name!r} has two values; give it one value{hint}")
        try:
            decoded = json.loads(value) if value else None
        except (ValueError, RecursionError):
            decoded = value
        attributes[name] = decoded if decoded is None or isinstance(decoded, int | list) else value
    return attributes
