"""Name a history. The name depends on the history and on its place, never on other histories of the
import.

    the source names the conversation   this name (``conversation_id``, ``session_id``, or the
                                        session in its records)
    the source names a task             the names of the file and of the task, as in
                                        ``runs/1/output:django__django-11276``
    the source names nothing            the name of the file, as in ``runs/1/events``; a number is
                                        added if the file contains several histories

If a folder is imported, the name of a file is its path below this folder. A file with the same name
as its folder gets the path of the folder. A single imported file has its own name without a path,
or ``folder/name`` if the name is a common one (``events``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from foldlog._base.json_types import JsonMap

_CONVERSATION = ("conversation", "conversation_id", "session_id", "id")
"""The fields that name a conversation."""
_NUMBERS = ("task_id", "question_id", "trial")
"""The fields that together name a task."""
_SAYS_NOTHING = re.compile(
    r"\d+|(chat|conversation|data|events?|export|history|histories|log|messages?|output|records?"
    r"|results?|rollout|run|session|traj|trajectory|trajectories|transcript)([._-]?\d+)?",
    re.IGNORECASE,
)
"""Common names that files have in many folders."""


class Names:
    """Names the histories of one file or folder.

    ``root`` is the imported path. ``place`` is the path of the file or folder, at or below
    ``root``.
    """

    def __init__(self, root: Path, place: Path, *, is_folder: bool = False) -> None:
        absolute = Path(os.path.abspath(place))
        self._root = Path(os.path.abspath(root))
        stem = absolute.stem
        if absolute.suffix == ".zst":  # log.jsonl.zst
            stem = Path(stem).stem
        self._whole = absolute if is_folder else absolute.with_name(stem)
        self._stem = self._whole.name
        if self._root in absolute.parents:
            self._place = self._path_from_root()
        else:
            self._place = self._alone(is_folder=is_folder)
        self._counts: dict[str, int] = {}
        """Maps a name to the number of histories that have asked for it."""

    def _path_from_root(self) -> str:
        """Return the path of the file below the imported folder."""
        start = self._root if self._root == Path.cwd() else self._root.parent
        path = self._whole.relative_to(start)
        return str(path.parent if path.name == path.parent.name else path)

    def _alone(self, *, is_folder: bool) -> str:
        """Return the name of a file that was imported by itself."""
        parent = self._whole.parent.name
        says_nothing = not is_folder and _SAYS_NOTHING.fullmatch(self._stem) is not None
        if says_nothing and parent:
            return f"{parent}/{self._stem}"
        return self._stem

    def of(
        self, container: JsonMap, *, number: str = "", conversation: str | None = None
    ) -> tuple[str, str]:
        """Return the name of one history, and its own name: the part of the name that does not
        depend on the path of the file. The own name is empty if the history has the name of the
        file. A number is added if this file contains several histories with one name.

        ``conversation`` is the name of the conversation in the records. ``container`` is the object
        that holds the records. ``number`` is the place of the history in this file.
        """
        recorded = _conversation_in(container) or conversation
        if recorded:
            name = self._unique(_clean(recorded))
            return name, f"/{name}"
        place = _clean(self._place)
        name = self._unique(place + _clean(self._task_or_number(container, number)))
        return name, name.removeprefix(place)

    def _task_or_number(self, container: JsonMap, number: str) -> str:
        """Return what tells this history from others of the file: its task, or its number."""
        task = _task_in(container)
        if task is None:
            return f":{number}" if number else ""
        return "" if task == self._stem and not number else f":{task}"

    def _unique(self, name: str) -> str:
        """Return a name that no other history of the file has."""
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        return name if count == 1 else self._unique(f"{name}#{count}")


def _conversation_in(container: JsonMap) -> str | None:
    """Return the conversation that an object with records names, or None."""
    about = container.get("conversation")
    for named in (container, about if type(about) is dict else {}):
        for key in _CONVERSATION:
            name = named.get(key)
            if type(name) is str and name:
                return name
    return None


def _task_in(container: JsonMap) -> str | None:
    """Return the task that an object with records names, or None. A task does not name a
    conversation, because other runs have the same task.
    """
    task = container.get("instance_id")
    if type(task) is str and task:
        return task
    numbers = [container[key] for key in _NUMBERS if key in container]
    is_named = bool(numbers) and all(type(number) in (int, str) for number in numbers)
    return ":".join(map(str, numbers)) if is_named else None


def _clean(name: str) -> str:
    """Replace lone surrogates and NUL characters, because a store does not accept them."""
    return name.encode("utf-8", "replace").decode().replace("\0", "?")
