"""Choose the messages that Codex sends again after a compaction without ``replacement_history``.

Older versions of Codex recorded only the summary of a compaction. Codex made a new prompt, and
makes it so when it resumes such a session: the initial context, the newest messages of the user,
and the summary (``build_compacted_history`` in Codex's ``compact.rs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

_TOKENS_MAX = 20_000
"""The number of tokens of the user's messages that Codex sends again."""
_BYTES_PER_TOKEN = 4
"""Codex estimates the number of tokens in a text by its size in UTF-8."""
NO_SUMMARY = "(no summary available)"
"""Codex sends this text in place of an empty summary."""
_MARKED_SUMMARY = "Another language model started to solve this problem"
"""Codex begins a summary with a sentence that begins so. A summary without it counts as a message
of the user in the next compaction.
"""


def newest_messages(texts: Sequence[str]) -> list[str]:
    """Return the newest of the user's ``texts``, oldest first, with at most ``_TOKENS_MAX`` tokens
    together. The oldest of them may be truncated.
    """
    messages: list[str] = []
    remaining = _TOKENS_MAX
    for text in reversed(texts):
        if remaining == 0:
            break
        tokens = _tokens_of(len(_in_utf8(text)))
        messages.append(text if tokens <= remaining else truncate_middle(text, remaining))
        remaining -= min(tokens, remaining)
    return messages[::-1]


def truncate_middle(text: str, tokens_max: int) -> str:
    """Return the beginning and the end of ``text``, with the number of tokens that are left out
    between them. Characters are never cut.
    """
    body = _in_utf8(text)
    bytes_max = tokens_max * _BYTES_PER_TOKEN
    removed = _tokens_of(len(body) - bytes_max)
    begin = bytes_max // 2
    end = len(body) - (bytes_max - begin)
    before = body[:begin].decode(errors="ignore")
    after = body[end:].decode(errors="ignore")
    return f"{before}…{removed} tokens truncated…{after}"


def is_marked_summary(text: str) -> bool:
    """Return whether a summary has the sentence by which Codex recognizes it."""
    return text.startswith(_MARKED_SUMMARY)


def _in_utf8(text: str) -> bytes:
    """Return the bytes of a text. UTF-8 cannot hold a lone surrogate, which becomes ``?``."""
    return text.encode(errors="replace")


def _tokens_of(size_bytes: int) -> int:
    """Return the tokens of a text of this size, rounded up."""
    return ceil(size_bytes / _BYTES_PER_TOKEN)
