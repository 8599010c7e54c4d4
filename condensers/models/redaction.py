"""Remove keys from the texts of servers before they go into an error or a summary, and so into the log. A server that
refuses a key often repeats it, and a proxy may repeat whole requests with their headers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from condensers.models.llm_config import LLMConfig

_LENGTH_MIN = 8
"""Shorter texts are not taken for keys: common words would be removed."""

_KEY_NAMES = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
"""Ends of the names of environment variables that hold a key. litellm may have sent any of them."""

_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def without_keys(text: str, config: LLMConfig, key: str | None) -> str:
    """Return ``text`` with ``***`` for every key in it: the key that is sent, the password in the address, and the
    values of environment variables that are named like a key.
    """
    variables = (value for name, value in os.environ.items() if _KEY_NAMES.search(name))
    return _without(text, {key or "", *_PASSWORD.findall(config.base_url or ""), *variables})


def without_secrets(text: str, config: LLMConfig, key: str | None) -> str:
    """Return ``text`` without keys and without the texts in ``extra``, such as headers. This is for errors: from a
    summary these texts would remove words.
    """
    return _without(without_keys(text, config, key), set(_texts(config.extra)))


def _without(text: str, secrets: set[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LENGTH_MIN:
            text = text.replace(secret, "***")
    return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for held in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(held)
