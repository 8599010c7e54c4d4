"""Take what the file of a conversation has since it was imported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from foldlog._archive.importing import Failed, Import
from foldlog._archive.redacting import source_files
from foldlog.eventstore import Store


class Refreshed(NamedTuple):
    """The conversation that a source is now: the same, or a fork where its program wrote it again. ``problem`` says why
    its file could not be read.
    """

    conversation: str
    problem: str = ""


def refreshed(store: Store, conversation: str) -> Refreshed:
    """Import again the files of a conversation that were imported under their own names, and are still there.

    Cost: the status of the file where it is unchanged; else what is new in it.
    """
    for name in source_files(store, [conversation]).get(conversation, ()):
        path, importing = Path(name), Import(store, [Path(name)], only=conversation.partition("@")[0])
        if not path.exists() or not importing.has_place(path):
            continue
        for outcome in importing:
            if isinstance(outcome, Failed):
                return Refreshed(conversation, f"{path.name}: {outcome.error}")
            if outcome.conversation == conversation or outcome.conversation.startswith(f"{conversation}@"):
                return Refreshed(outcome.conversation)
        problems = "; ".join(map(str, importing.findings))
        return Refreshed(conversation, problems)
    return Refreshed(conversation)
