"""What a history is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["name_of"]


def name_of(container: Mapping[str, Any], stem: str) -> str | None:
    """Return the name that a container gives its history. A number says little: the file's ``stem`` goes before it."""
    about = container.get("conversation")
    for named in (container, about if type(about) is dict else {}):
        for key in ("conversation", "conversation_id", "session_id", "instance_id", "id"):
            name = named.get(key)
            if type(name) is str and name:
                return name
    numbers = [container[key] for key in ("task_id", "question_id", "trial") if key in container]
    if numbers and all(type(number) is int or type(number) is str for number in numbers):
        return ":".join([stem, *map(str, numbers)])
    return None
