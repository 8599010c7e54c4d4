"""Import the records that were added to the file of a conversation since its last import."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from foldlog._imports.importing import Failed, Import
from foldlog._imports.redacting import source_files
from foldlog.eventstore import Store

_FORK: Final = re.compile(r"(@\d+(\.\d+)?)+$")
"""Matches the end of a fork's name, such as ``@12``, after the name of its parent."""


def import_again(
    store: Store, conversation: str, is_secret: Callable[[bytes], bool] | None = None
) -> tuple[str, str]:
    """Import the file of a conversation again. Do nothing if the file is missing, or if it was
    imported with a prefix or a chosen name.

    Return the id of the newest conversation of the file, and the text of a problem, which is empty
    if the file could be read. If the program has rewritten earlier records, the newest conversation
    is a fork, ``ID@VERSION``.

    Cost: the function checks the status of the file, and reads the new records of a changed file.
    """
    # A fork and its parent have the same file, and the same name in it.
    name_in_file = _FORK.sub("", conversation)
    for path in map(Path, source_files(store, [conversation]).get(conversation, ())):
        importing = Import(store, [path], only=name_in_file, is_secret=is_secret)
        if not path.exists() or not importing.has_place(path):
            continue
        for outcome in importing:
            if isinstance(outcome, Failed):
                return conversation, f"{path.name}: {outcome.error}"
            is_fork = outcome.conversation.startswith(f"{conversation}@")
            if is_fork or outcome.conversation == conversation:
                return outcome.conversation, ""
        return conversation, "; ".join(map(str, importing.findings))
    return conversation, ""
