"""Keys are told to nobody: they are taken out of what servers say before it goes into an error, and so into the log.

A server that refuses a key likes to repeat it, and a proxy repeats whole requests, headers and all. Nobody knows where
litellm found the key that it sent, so every text that may be one is taken out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from condensers.llm_config import LLMConfig

__all__ = ["mentions_a_secret", "without_secrets"]

_LENGTH_MIN = 8
"""Shorter texts are no keys, and would take common words out of what is said."""

_KEY_NAMES = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
"""What the environment variable of a key is called."""

_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def without_secrets(text: str, config: LLMConfig, key: str | None) -> str:
    """``text`` with ``***`` for every secret in it: the key, what ``config`` has in ``extra`` and in its address, and
    the values of environment variables that are called like a key.
    """
    for secret in sorted(set(_secrets(config, key)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def mentions_a_secret(error: BaseException, config: LLMConfig, key: str | None) -> bool:
    """Whether this error, or one behind it, would show a secret in a traceback."""
    link: BaseException | None = error
    while link is not None:
        if without_secrets(str(link), config, key) != str(link):
            return True
        link = link.__cause__ or link.__context__
    return False


def _secrets(config: LLMConfig, key: str | None) -> Iterator[str]:
    named = (value for name, value in os.environ.items() if _KEY_NAMES.search(name))
    passwords = _PASSWORD.findall(config.base_url or "")
    for text in (key or "", *passwords, *_texts(config.extra), *named):
        if len(text) >= _LENGTH_MIN:
            yield text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held)
