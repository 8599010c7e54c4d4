"""``foldlog rebuild``: rebuild stored Views from the events."""

from __future__ import annotations

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db, SomeConversations
from foldlog.cli.outcome import DONE, is_of_damage
from foldlog.cli.stores import chosen, open_existing, whole
from foldlog.eventstore import EventStoreError, UnknownEventType
from foldlog.projections import Views
from foldlog.words.gist import count


def run(conversations: SomeConversations = None, db: Db = DEFAULT_DB, as_json: AsJson = False) -> int:
    """Rebuild the revisions of Views from the events. The store stays online.

    The new revisions replace the old ones at once. A damaged conversation is reported and the others are rebuilt; exit
    status 1.

    Example: foldlog rebuild tidewatch
    """
    rebuilt: dict[str, int] = {}
    findings: list[str] = []
    with open_existing(db) as store, terminal.progress() as bars:
        views = Views(store)
        for conversation in chosen(store, conversations, find=whole):
            bar = bars.add_task(terminal.printable(conversation, one_line=True), unit="events", total=None)
            try:
                rebuilt[conversation] = views.rebuild(conversation, terminal.completing(bars, bar))
            except EventStoreError as error:
                if not (isinstance(error, UnknownEventType) or is_of_damage(error)):
                    raise
                findings.append(terminal.about(conversation, str(error)))
    if as_json:
        done = [{"conversation": name, "revisions": made} for name, made in rebuilt.items()]
        terminal.emit({"rebuilt": done, "findings": findings})
    else:
        made = count(sum(rebuilt.values()), "revision")
        terminal.console().print(f"{made} of {count(len(rebuilt), 'conversation')} rebuilt from the events")
    for finding in findings:
        terminal.warn(finding)
    return DONE
