"""Prompt texts, as files beside this one. What a model was told is part of the record, so every prompt has a hash."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Prompt", "load_prompt"]


class Prompt(NamedTuple):
    """A prompt's name, its text, and the SHA-256 of that text in UTF-8, which goes into the metadata of what it made."""

    name: str
    text: str
    sha256: str


@cache
def load_prompt(name: str) -> Prompt:
    """The prompt ``condensers/prompts/<name>.txt``. Raises ``FileNotFoundError`` where there is none."""
    text = files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return Prompt(name, text, hashlib.sha256(text.encode()).hexdigest())
