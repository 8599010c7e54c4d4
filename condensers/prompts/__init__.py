"""Prompt texts, as files beside this one. What a model was told is part of the record, so every prompt has a hash.

A line ``===`` parts a file in two: the instruction, which the system says and which goes first, and what is to be
worked on. ``$name`` stands for what changes from call to call. The hash is of the whole file.

``rendering.py`` turns events into text for a model that summarizes them.
"""

from __future__ import annotations

import hashlib
import string
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

__all__ = ["Prompt", "load_prompt"]

_PARTED = "\n===\n"


class Prompt(NamedTuple):
    """A prompt's name, its text, and the SHA-256 of that text in UTF-8, for the metadata of what it made."""

    name: str
    text: str
    sha256: str

    def messages(self, **values: str) -> list[dict[str, Any]]:
        """Return the prompt as chat messages, a system's and, if the file has two parts, a user's, with every ``$name``
        filled in. Raises ``KeyError`` where a value is missing.
        """
        parts = zip(("system", "user"), self.text.split(_PARTED), strict=False)
        return [{"role": role, "content": string.Template(part).substitute(values).strip()} for role, part in parts]


@cache
def load_prompt(name: str) -> Prompt:
    """Load the prompt ``condensers/prompts/<name>.txt``. Raises ``FileNotFoundError`` if it does not exist."""
    text = files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return Prompt(name, text, hashlib.sha256(text.encode()).hexdigest())
