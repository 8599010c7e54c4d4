"""Find out whether a person refused a call. The result of the call says so in a field, or in the
words that agents use. The tool did not run, so the result is no error of the tool.
"""

from __future__ import annotations

import re

from foldlog.eventstore import Observation
from foldlog.projections.messages.content import words_of

REJECTION_SOURCE = "rejection_source"
"""The field of an observation that says who rejected the call: ``user``, or a hook."""
OF_USER = "user"
_BEGINNING = 400
"""A refusal is the whole result, so its words stand at the beginning. A text further on may be an
output that quotes them.
"""
_REFUSED = re.compile(
    r"(?:the )?user (?:doesn't|does not) want to (?:proceed with this tool use|take this action)"
    r"|(?:the )?user (?:rejected|denied|declined) (?:permission to use )?(?:this|the)"
    r" (?:specific )?(?:tool call|tool use|operation|action)"
    r"|user did not allow tool call"
    r"|\A(?:exec command |patch )?rejected by (?:the )?user"
    r"|\A(?:interrupted|not begun): (?:refused|rejected|denied|declined) by ",
    re.IGNORECASE,
)
"""The words with which agents say that a person refused a call."""
_USER_WORDS = re.compile(r"the user said:\s*(.*)\Z", re.IGNORECASE | re.DOTALL)
"""The words of the person, after the text with which an agent introduces them."""
_NO_REASON = re.compile(
    r"User rejected the action\.?|The action was rejected, and no reason was given\."
)
"""What an agent writes in place of the person's words if the person gave no reason."""


def words_in_refusal(observation: Observation) -> str | None:
    """Return what the person said who refused the call, or an empty text if the person gave no
    reason. Return None if nobody refused the call.
    """
    if observation.extras.get(REJECTION_SOURCE) == OF_USER:
        text = words_of(observation.content)
        return "" if _NO_REASON.fullmatch(text.strip()) else text
    if not observation.is_error:
        return None
    return words_in_refusal_text(words_of(observation.content))


def words_in_refusal_text(text: str) -> str | None:
    """Return what ``words_in_refusal`` returns, for the text of a failed result."""
    if not _REFUSED.search(text[:_BEGINNING]):
        return None
    match = _USER_WORDS.search(text)
    return "" if match is None else match[1].strip()
