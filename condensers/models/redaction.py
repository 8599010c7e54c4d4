"""Remove keys from the texts of servers before they go into an error, and so into the log. A server that refuses a key
often repeats it, and a proxy may repeat whole requests with their headers.

It is unknown where litellm found the key that it sent. So every text that may be a key is removed from an error. From a
reply only certain keys are removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from condensers.models.failures import chain_of
from condensers.models.llm_config import LLMConfig

_LENGTH_MIN = 8
"""Shorter texts are not taken for keys: common words would be removed."""

_KEY_NAMES = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
"""Parts of the names of environment variables that may hold a key."""

_SURE_KEY_NAMES = re.compile(r"_(API_KEY|ACCESS_KEY|TOKEN)$", re.IGNORECASE)

_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def without_secrets(text: str, config: LLMConfig, key: str | None) -> str:
    """Return ``text`` with ``***`` for every secret in it: the key, the values of ``extra`` and the address in
    ``config``, and the values of environment variables that are named like a key.
    """
    return _without(text, (*_keys(config, key, _KEY_NAMES), *_texts(config.extra)))


def without_keys(text: str, config: LLMConfig, key: str | None) -> str:
    """Return ``text`` with ``***`` for every key in it. It is used for summaries, which must not lose other words: a
    text that is only perhaps a key stays.
    """
    return _without(text, _keys(config, key, _SURE_KEY_NAMES))


def mentions_a_secret(error: BaseException, config: LLMConfig, key: str | None) -> bool:
    """Return whether a traceback of this error, or of one that caused it, would show a secret."""
    return any(without_secrets(str(link), config, key) != str(link) for link in chain_of(error))


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
