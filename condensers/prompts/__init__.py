"""The prompts of condensers, as text files in this folder. A condensation records the hash of its
prompt.

A line ``===`` divides a prompt file in two parts. The first part is sent as the system message, and
the second part as the user message. ``$name`` in a prompt file stands for a value that changes from
call to call. The hash covers the whole prompt file.

``rendering.py`` turns events into text for a model that summarizes them.
"""

from __future__ import annotations

import hashlib
import string
from functools import cache
from pathlib import Path
from typing import NamedTuple

from foldlog._base.json_types import JsonObject

_PARTED = "\n===\n"


class Prompt(NamedTuple):
    """A prompt file, with its name and its hash."""

    name: str
    text: str
    sha256: str

    def messages(self, **values: str) -> list[JsonObject]:
        """Return a system message and, if the prompt file has two parts, a user message. Raises
        ``KeyError`` if the value of a ``$name`` is missing.
        """
        parts = zip(("system", "user"), self.text.split(_PARTED), strict=False)
        return [
            {"role": role, "content": string.Template(part).substitute(values).strip()}
            for role, part in parts
        ]


@cache
def load_prompt(name: str) -> Prompt:
    content = Path(__file__).with_name(f"{name}.txt").read_bytes()
    return Prompt(name, content.decode(), hashlib.sha256(content).hexdigest())
