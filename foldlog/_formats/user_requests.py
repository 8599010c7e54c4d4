"""What a user asks for in a message, among what a runtime adds to it."""

from __future__ import annotations

import re
from typing import Final

READ_MAX: Final = 20_000
"""The number of characters of a message that are read for it."""
_TAG = re.compile(r"</?[a-z]+(?:-[a-z]+)+>")
"""Begins or ends what a runtime says in a user's message, as ``<command-name>``."""


def asked_in(text: str) -> tuple[str, str]:
    """Return what a user asks for in these words, without what a runtime added to them, and all
    that they say.
    """
    # most processes need no condenser
    from foldlog.condensers.strategies.user_words import of_user

    text = text[:READ_MAX]
    return " ".join(of_user(text).asked.split()), " ".join(_TAG.sub(" ", text).split())
