"""Take what the file of a conversation has since it was imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foldlog._archive.importing import Failed, Import
from foldlog._archive.redacting import source_files
from foldlog.eventstore import Store


def refreshed(
    store: Store, conversation: str, is_secret: Callable[[bytes], bool] | None = None
) -> tuple[str, str]:
    """Import again the file of a conversation that was imported under its own name, and is still
    there.

    Return the conversation that it is now, the same or a fork where its program wrote it again, and
    why its file could not be read, which is empty if it was. Cost: the status of the file where it
    is unchanged; else what is new in it.
    """
    for path in map(Path, source_files(store, [conversation]).get(conversation, ())):
        importing = Import(store, [path], only=conversation.partition("@")[0], is_secret=is_secret)
        if not path.exists() or not importing.has_place(path):
            continue
        for outcome in importing:
            if isinstance(outcome, Failed):
                return conversation, f"{path.name}: {outcome.error}"
            if outcome.conversation == conversation or outcome.conversation.startswith(
                f"{conversation}@"
            ):
                return outcome.conversation, ""
        return conversation, "; ".join(map(str, importing.findings))
    return conversation, ""
