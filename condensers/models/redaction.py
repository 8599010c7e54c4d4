"""Keys stay secret: they are removed from servers' replies before these go into an error, and so into the log.

A server that refuses a key likes to repeat it, and a proxy repeats whole requests, headers and all. It is unknown where
litellm found the key that it sent, so every text that may be one is taken out. A reply may repeat a key, too; of it
only what surely is one is taken out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from condensers.models.llm_config import LLMConfig

__all__ = ["mentions_a_secret", "without_keys", "without_secrets"]

_LENGTH_MIN = 8
"""Shorter texts are no keys, and would take common words out of what is said."""

_KEY_NAMES = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
"""What the environment variable of a key may be called, and those of other things too."""

_SURE_KEY_NAMES = re.compile(r"_(API_KEY|ACCESS_KEY|TOKEN)$", re.IGNORECASE)

_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def without_secrets(text: str, config: LLMConfig, key: str | None) -> str:
    """Return ``text`` with ``***`` for every secret in it: the key, what ``config`` has in ``extra`` and in its
    address, and the values of environment variables that are called like a key.
    """
    return _without(text, (*_keys(config, key, _KEY_NAMES), *_texts(config.extra)))


def without_keys(text: str, config: LLMConfig, key: str | None) -> str:
    """Return ``text`` with ``***`` for every key in it. For what is to be remembered, where no other word may be lost:
    what is only perhaps a secret stays.
    """
    return _without(text, _keys(config, key, _SURE_KEY_NAMES))


def mentions_a_secret(error: BaseException, config: LLMConfig, key: str | None) -> bool:
    """Return whether this error, or one behind it, would show a secret in a traceback."""
    link: BaseException | None = error
    while link is not None:
        if without_secrets(str(link), config, key) != str(link):
            return True
        link = link.__cause__ or link.__context__
    return False


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _LENGTH_MIN:
            text = text.replace(secret, "***")
    return text


def _keys(config: LLMConfig, key: str | None, names: re.Pattern[str]) -> Iterator[str]:
    yield key or ""
    yield from _PASSWORD.findall(config.base_url or "")
    yield from (value for name, value in os.environ.items() if names.search(name))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held)
