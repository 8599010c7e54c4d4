"""Replace the passwords in texts. A password has no known shape, so what stands before it finds it:
the name of a field, a variable, an option, a header or a few words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from foldlog._reports.search.secrets import SECRET, kinds_in

PASSWORD = SECRET.format("password")
"""What stands in place of a password."""
_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|(?<![a-z])pass|secret|authorization|cookie"
    r"|(?:api|access|private|secret)[_-]?key|(?:access|auth|bearer|refresh|session)[_-]?token)"
)
_NAME = rf"(?:\btoken|{_NAMES}\d?)"
_FIELD = re.compile(rf"(?i)(?:^token|{_NAMES}\d?)$")
_VALUE = (
    r"""(?P<quote>\\*["'`])?"""
    r"""(?P<value>(?(quote)(?:(?!(?P=quote))[^\n])+"""
    r"""|(?:[^\s"'`\\&,;()\[\]{}<>|]|\\(?![nrt"'\\]))+))"""
)
"""Matches a value with or without quotes."""
_IN_JSON = re.compile(
    rf"""(?i){_NAME}(?P<quote>\\*["'])\s*:\s*(?P=quote)(?P<value>(?:(?!(?P=quote))(?:\\.|.))+)"""
)
"""Matches a field in a text that is JSON, a part of JSON, or JSON in JSON."""
_ASSIGNED = re.compile(
    rf"(?i){_NAME}(?P<between>[ \t]*(?::=|=>|[=!]?=|:)[ \t]*|[ \t]+(?:is|was):?[ \t]+){_VALUE}"
)
"""Matches a value after its name: in settings, in a program, in the query of a URL, in a header or
in a sentence.
"""
_CERTAIN = (
    # a variable in a shell or in a file .env
    re.compile(
        r"\b(?:[A-Z0-9]+_)*(?:[A-Z0-9]*PASSWORD|[A-Z0-9]*PASSWD|[A-Z0-9]+_PASS|MYSQL_PWD|SECRET"
        r"""|TOKEN|(?:API|ACCESS|PRIVATE|SECRET)_KEY)=["']?(?P<value>[^\s"'$]+)"""
    ),
    re.compile(
        r"""(?i)authorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+(?P<value>[^\s"'\\]+)"""
    ),
    re.compile(r"""(?i)\b(?:set-)?cookie:[ ]*(?P<value>[^\s"'\\=]+=[^\n"'\\]+)"""),
    re.compile(r"://[^\s/:@]*:(?P<value>[^\s/?#]+)(?=@)"),
    # arguments of commands
    re.compile(rf"(?i)(?<![\w-])--(?:\w+-)*(?:{_NAMES}|token)(?:\s+|=)(?!-){_VALUE}"),
    re.compile(rf"\b(?:mysql|mariadb)\w*\s(?:[^\n|;&]{{0,300}}?\s)??-p{_VALUE}"),
    re.compile(
        rf"\b(?:sshpass|(?:docker|podman)\s+login)\s(?:[^\n|;&]{{0,300}}?\s)??-p\s*{_VALUE}"
    ),
    re.compile(rf"\bredis-cli\s(?:[^\n|;&]{{0,300}}?\s)??-a\s+{_VALUE}"),
    re.compile(
        r"\bcurl\s(?:[^\n|;&]{0,300}?\s)??(?:-u|--user)\s*"
        r"""["']?[^\s:"'$]+:(?P<value>[^\s"'$]+)"""
    ),
    # a file .netrc, SQL, XML
    re.compile(rf"(?i)\blogin\s+\S+\s+password\s+{_VALUE}"),
    re.compile(
        rf"(?i)\b(?:identified\s+by|(?:user|role)\b[^\n;]{{0,200}}?\spassword)\s+(?='){_VALUE}"
    ),
    re.compile(rf"(?i)<(?:[\w-]+[:.-])?(?:{_NAMES}|token)>(?P<value>[^\s<]+)</"),
)
"""What follows in these places is a password, whatever it looks like."""
_STAND_IN = re.compile(
    rf"(?i)none|null|nil|true|false|undefined|str|string|bytes|[$<{{*].*|\[secret: .*"
    rf"|(?:\w+[_-])?(?:token|{_NAMES})"
)
"""Matches a value that names a type or another value."""
_COUNT = re.compile(r"(?i)pass\W")
"""Matches the name before a number of tests, as in "pass: 15"."""
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""Matches an attribute in a program, such as ``settings.password``."""
_IN_QUERY = re.compile(r"[?&][\w.-]*\Z")
"""Matches what comes before a name in the query of a URL."""
_QUERY_NAME_MAX = 100
_SPACED_MIN = 6
"""After a colon, a space or the word "is", a shorter value without quotes may be any word. A value
without a digit may be one too, however long it is.
"""
_KEYWORDS = (
    "pass", "pwd", "secret", "token", "key", "authorization", "cookie", "://", "mysql", "mariadb",
    "redis-cli", "docker", "podman", "curl", "identified",
)  # fmt: skip
"""A line without any of these words has no password that a pattern finds. Looking for the words is
a hundred times as fast as the patterns.
"""
_LONG = 8
"""A shorter value may be a common word, so it is replaced only in its place. A longer value is
replaced wherever it occurs in the run.
"""


def is_password(name: str, value: object) -> bool:
    """Return whether the name of a field says that its value is a password."""
    is_field = isinstance(value, str) and value and _FIELD.search(name)
    return bool(is_field) and not kinds_in(str(value))


def is_long(password: str) -> bool:
    """Return whether a password is replaced wherever it occurs: see ``_LONG``."""
    return len(password) >= _LONG


def passwords_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield the long passwords in texts, which may occur at other places without their names."""
    for text in texts:
        for match in _matches(text):
            value = match["value"]
            is_named = match.re is _IN_JSON or any(map(str.isdigit, value))
            if is_named and is_long(value) and not kinds_in(value):
                yield value


def without_passwords(text: str, passwords: Sequence[str]) -> str:
    """Return a text without ``passwords``, and without the passwords that its own words name."""
    for password in passwords:
        text = text.replace(password, PASSWORD)
    parts: list[str] = []
    end = 0
    for start, stop in sorted(match.span("value") for match in _matches(text)):
        if start >= end:
            parts += text[end:start], PASSWORD
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _matches(text: str) -> Iterator[re.Match[str]]:
    """Yield the passwords in a text. The group ``value`` of a match is the password."""
    for start, end in _lines_with_keywords(text):
        for match in _IN_JSON.finditer(text, start, end):
            if not match["value"].startswith("[secret: "):
                yield match
        for pattern in _CERTAIN:
            for match in pattern.finditer(text, start, end):
                if not _STAND_IN.fullmatch(match["value"]):
                    yield match
        yield from filter(_is_assigned_password, _ASSIGNED.finditer(text, start, end))


def _lines_with_keywords(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each line in which a password may be."""
    if not _has_keyword(text):
        return
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        if _has_keyword(line):
            yield start, end
        start = end + 1


def _has_keyword(text: str) -> bool:
    lower = text.lower()
    return any(keyword in lower for keyword in _KEYWORDS)


def _is_assigned_password(match: re.Match[str]) -> bool:
    """Return whether a value after its name is a password, and not a word, a count, a call or an
    expression of a program.
    """
    value = match["value"]
    if _STAND_IN.fullmatch(value):
        return False
    if match["quote"]:
        return bool(value.strip())
    before = max(match.start() - _QUERY_NAME_MAX, 0)
    if _IN_QUERY.search(match.string, before, match.start()):
        return True
    following = match.string[match.end() : match.end() + 1]
    has_digit = any(map(str.isdigit, value))
    ends_argument = following in (",", ")")
    if following in ("(", "["):
        return False
    if _ATTRIBUTE.fullmatch(value) and (ends_argument or not has_digit):
        return False
    if not any(map(str.isalnum, value)) or (value.isdigit() and _COUNT.match(match[0])):
        return False
    if match["between"] == "=":
        # a name after the name of an argument is a variable
        return has_digit or not ends_argument or not value.isidentifier()
    # the number of tokens of a prompt has digits only
    is_mixed = any(map(str.isalpha, value)) or "token" not in match[0].lower()
    return has_digit and is_mixed and len(value) >= _SPACED_MIN
