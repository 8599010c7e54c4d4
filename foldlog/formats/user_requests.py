"""Find the request of a user in a message to which a runtime added context."""

from __future__ import annotations

import re
from typing import Final

READ_MAX: Final = 20_000
"""Only this number of characters at the beginning of a message is searched for the request."""
_TAG = re.compile(r"</?[a-z]+(?:-[a-z]+)+>")
"""A tag, such as ``<command-name>``, around a text that a runtime added to a user's message."""


def request_in(text: str) -> tuple[str, str]:
    """Return two texts: the user's request in a message, and the whole message. The request does
    not contain the context that a runtime added.
    """
    # imported here, because most processes need no condenser
    from foldlog.condensers.strategies.user_words import of_user

    text = text[:READ_MAX]
    return " ".join(of_user(text).split()), " ".join(_TAG.sub(" ", text).split())
