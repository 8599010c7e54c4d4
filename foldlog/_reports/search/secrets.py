"""Find keys and tokens in texts by their known shapes. A secret is reported by its kind, and its
value is never stored.

A regular expression finds the lines that may contain a secret. Only these lines are checked by the
rules of ``detect-secrets``, because the rules take a hundred times as long. A few shapes that
``detect-secrets`` does not know are checked too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from foldlog._base.json_types import JsonObject
from foldlog._base.values import texts_in
from foldlog._reports.search.searching import candidates_in
from foldlog.eventstore import ConversationErased, Event, EventStoreError, InvalidOption, Store
from foldlog.eventstore.errors import install_command

_MAY_HOLD = re.compile(
    rb"(?:akia|asia|abia|acca)[0-9a-z]{16}|gh[pousr]_\w{36}"
    rb"|github_pat_\w{20}|gl(?:pat|dt|ft|soat|rt)-|\bsk-[\w-]{20}"
    rb"|xox[abposr]-\d|hooks\.slack\.com/services/|aiza[\w-]{35}|eyj[\w-]{10,}\.eyj|-begin [a-z"
    rb" ]*private key"
    rb"|\bsg\.[\w-]{22}\.|[rs]k_live_\w{24}|_authtoken=\s*npm_|\bnpm_[a-z0-9]{36}|pypi-ageic"
    rb"|accountkey=|sq0csp-|\b\d{8,10}:[\w-]{35}"
    rb"|lin_api_\w{30}"
)
"""Matches some part of every known secret. The text must be in lower case."""
_FURTHER_SHAPES = {
    "Anthropic API Key": re.compile(r"\bsk-ant-[\w-]{20,}"),
    "OpenAI Project Key": re.compile(r"\bsk-(?:proj|svcacct|admin)-[\w-]{20,}"),
    "Google API Key": re.compile(r"\bAIza[\w-]{35}"),
    "GitHub Token": re.compile(r"\bgithub_pat_\w{22,}"),
    "NPM tokens": re.compile(r"\bnpm_[A-Za-z0-9]{36}\b"),
    "Linear API Key": re.compile(r"\blin_api_\w{30,}"),
}
"""Secrets that ``detect-secrets`` does not find."""
SECRET = "[secret: {}]"
"""What an exported text has in place of a secret."""
_RULES = (
    "AWSKeyDetector",
    "AzureStorageKeyDetector",
    "GitHubTokenDetector",
    "GitLabTokenDetector",
    "JwtTokenDetector",
    "NpmDetector",
    "OpenAIDetector",
    "PrivateKeyDetector",
    "PypiTokenDetector",
    "SendGridDetector",
    "SlackDetector",
    "SquareOAuthDetector",
    "StripeDetector",
    "TelegramBotTokenDetector",
)
"""The classes of ``detect-secrets`` that are used: each of them knows the shape of its secrets."""
_PART_SIZE = 100_000
"""A longer line is searched in parts of so many characters. Only the parts that may hold a secret
are passed to the rules, which are slow.
"""
_PARTS_OVERLAP = 1_000
"""A part has so many characters of the next part too, because a secret may cross their border."""
_ESCAPE = re.compile(r'\\[nrtbf"/]')
"""An escape of JSON. Escapes are removed before the search. Otherwise the letter of an escape, such
as ``n``, would seem to belong to the next word.
"""
_WORD = re.compile(r"[^\s\"'\\]+")
_ESCAPED_BYTES = re.compile(_ESCAPE.pattern.encode())


def may_hold_secrets(data: bytes) -> bool:
    """Return whether bytes may contain a secret, with a quick test. The bytes must be in lower
    case.
    """
    return _MAY_HOLD.search(_ESCAPED_BYTES.sub(b" ", data)) is not None


def kinds_in(text: str) -> tuple[str, ...]:
    """Return the kinds of the secrets in a text, in alphabetical order. Raises ``InvalidOption`` if
    ``detect-secrets`` is not installed.
    """
    rules = _rules()
    kinds = set[str]()
    for line in _ESCAPE.sub(" ", text).splitlines():
        for start in range(0, len(line), _PART_SIZE):
            part = line[start : start + _PART_SIZE + _PARTS_OVERLAP]
            if not may_hold_secrets(part.lower().encode("utf-8", "replace")):
                continue
            kinds |= {rule.secret_type for rule in rules if any(rule.analyze_string(part))}
            kinds |= {kind for kind, shape in _FURTHER_SHAPES.items() if shape.search(part)}
    return tuple(sorted(kinds))


def without_secrets(text: str) -> str:
    """Return a text in which kinds of secrets replace the words that are secrets. A private key has
    further lines, so its kind replaces the whole text. Raises the errors of ``kinds_in``.
    """
    kinds = kinds_in(text)
    if not kinds:
        return text
    rest = _WORD.sub(lambda word: _named(kinds_in(word[0])) or word[0], text)
    return _named(kinds) if "Private Key" in kinds or kinds_in(rest) else rest


def _named(kinds: tuple[str, ...]) -> str:
    """Return the text that replaces secrets of these kinds, or "" if there are none."""
    return SECRET.format(", ".join(kinds)) if kinds else ""


def holds_secret(text: str) -> bool:
    """Return whether a text contains a secret. Raises the errors of ``kinds_in``."""
    return bool(kinds_in(text))


def is_secret(record: bytes) -> bool:
    """Return whether a record of a source contains a secret. Raises the errors of ``kinds_in``."""
    return may_hold_secrets(record.lower()) and holds_secret(record.decode("utf-8", "replace"))


def secrets_in(
    store: Store, conversation: str, unread: list[str]
) -> Iterator[tuple[Event, tuple[str, ...]]]:
    """Yield the events of a conversation that contain secrets, each with the kinds of its secrets,
    in the order of events.

    The problem of each unreadable event is added to ``unread``. Cost: the stored bytes of the
    conversation are read.
    """
    events: dict[int, tuple[Event, tuple[str, ...]]] = {}
    try:
        for event in candidates_in(store, conversation, may_hold_secrets, unread):
            kinds = {kind for text in texts_in(event) for kind in kinds_in(text)}
            if kinds:
                events[event.id] = event, tuple(sorted(kinds))
    except ConversationErased:
        return
    except EventStoreError as error:
        unread.append(f"{conversation}: {error}")
    for event_id in sorted(events):
        yield events[event_id]


@cache
def _rules() -> tuple[Any, ...]:
    """Return the rules of ``detect-secrets`` that are used. The package has no types."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    except ImportError as error:
        needed = (
            "finding secrets needs detect-secrets, which is not installed:"
            f" {install_command('secrets')}"
        )
        raise InvalidOption(needed) from error
    plugins: JsonObject = get_mapping_from_secret_type_to_class()
    classes = {rule.__name__: rule for rule in plugins.values()}
    rules: list[Any] = [classes[name] for name in _RULES]
    return tuple(rule() for rule in rules)


def secret_finder() -> Callable[[bytes], bool]:
    """Return ``is_secret``. Raise ``InvalidOption`` if ``detect-secrets`` is not installed. Call
    this before other work.
    """
    kinds_in("")
    return is_secret
