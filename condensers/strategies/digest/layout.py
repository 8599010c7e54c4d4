"""This module writes a digest in a limited number of characters. The sections share the characters.
A section begins with the number of lines that it leaves out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, islice, takewhile
from posixpath import basename, isabs

from foldlog.condensers.prompts.rendering import clip_line, truncate
from foldlog.condensers.strategies.digest.facts import Section
from foldlog.condensers.strategies.digest.fold import (
    AGENT_SAID,
    OF_EXAMPLE,
    TITLE,
    ChangedFile,
    Digest,
    DigestLine,
    NamePlace,
    OpenError,
)
from foldlog.condensers.strategies.digest.names import CUT

LENGTH_LEAST = 300
"""The section of requests may always have ``LENGTH_LEAST`` characters."""

SHARES: Mapping[Section, float] = {
    Section.ASKED: 0.2,
    Section.ORDERS: 0.15,
    Section.CHANGED: 0.12,
    Section.BUILT: 0.08,
    Section.REPORTED: 0.12,
    Section.TASKS: 0.06,
    Section.ERRORS: 0.06,
    Section.SAID: 0.1,
    Section.RAN: 0.09,
    Section.EARLIER: 0.2,
    Section.CALLED: 0.03,
    Section.READ: 0.02,
    Section.SHOWN: 0.02,
}
"""The share of a digest that each section may use, with the most important section first."""
_NAMES_SHARE = 0.28
"""The share of a digest for names with the words around them. This share is
exceeded only if the lines of all sections fit.
"""
_USED_IS_NEWER = 100
"""A name that the user or the agent wrote ranks as if it were ``_USED_IS_NEWER`` events newer."""
_FILES_SINCE = 20
_SINCE_MAX = 90
_REPORT_SINCE_MAX = 45
_LINE_LEAST = 8
_LINE_MAX = 1_000
_BULLET = "\n- "
_BETWEEN = " | "
_CUT_TWICE = f"{CUT}{_BETWEEN}{CUT}"
_UNSEEN = f"{_BULLET}(files that programs wrote are here only if an output names them)"
_SCRATCH = re.compile(
    r"(?i)(?!.*/(?:tests?|__tests__|specs?)/).*(?:\A|[/\\])"
    r"(?:test|reproduce|repro|debug|demo|scratch|tmp|temp|try|verify|check)[_-][^/\\]*"
    r": (?:written|created)"
)
_OMITTED = " earlier left out)"
_ID_LENGTH = 14
_WORD = re.compile(r"(?:[^\W_]|[_~/.:\\-])+")

_ROUNDS = ((1, 1), (2, 1.6), (1_000, 1.6), (1_000, 1_000))
"""Two factors for each round of the layout. A section may use its share times the first factor, and
the section of requests its share times the second factor. A long request thus uses only characters
that no other section needs.
"""

_LENGTHS: Mapping[Section, Sequence[int]] = {
    Section.ORDERS: (300, 160),
    Section.ASKED: (2_000, 1_000, 500, 320, 240, 160),
    Section.BUILT: (500, 300, 160),
    Section.REPORTED: (2_000, 1_000, 500, 300, 160),
    Section.SAID: (2_000, 1_000, 500, 300),
    Section.CHANGED: (300, 120),
    Section.EARLIER: (300, 120),
}
"""The lengths to which the older lines of a section may be cut. The layout takes the longest length
with which all lines fit. If the lines do not fit with the shortest length, some lines are left out.
"""
_FIRST_STAYS = frozenset((Section.ORDERS, Section.ASKED))
_ID = re.compile(r" \[(\d+)\]$", re.MULTILINE)


def text_of(digest: Digest, max_length: int) -> str:
    """Return the text of a digest. First every section gets its share, and the section of requests
    gets at least ``LENGTH_LEAST``. Then every section may have up to twice its share. Then all
    sections except the requests get the remaining characters, in the order of their importance. If
    characters are left, the section of requests gets them last. If a section is too small for all
    its lines, its newest lines stay in the digest. The first request and the first standing order
    stay in the digest too, if there is room. If the newest request or the agent's last text is too
    long, only its beginning and its end are shown. A standing order is not repeated if it is part
    of a request in the digest. The digest always says how many files were changed.
    """
    title = f"{TITLE}{digest.count} events"
    if digest.count:
        title += f", up to [{digest.newest}]; the conversation goes on"
    lines = _lines(digest)
    room = max_length - len(title)
    texts = dict.fromkeys(Section, "")
    names = sorted(digest.names.items(), key=lambda named: _newness(named[1]), reverse=True)
    names_length = sum(len(stood.line) + _ID_LENGTH for _, stood in names)
    if digest.files:
        least = _section_text(Section.CHANGED, (), len(digest.files))
    else:
        least = ""
    texts[Section.CHANGED] = least
    unseen = _UNSEEN if digest.files and digest.ran_program else ""
    room -= len(unseen)
    rest = room - min(int(_NAMES_SHARE * room), names_length) - len(least)
    for times, asked_times in _ROUNDS:
        for section, share in SHARES.items():
            most = int(share * room * (asked_times if section is Section.ASKED else times))
            most = max(most, LENGTH_LEAST * (section is Section.ASKED))
            before = texts[section]
            its_lines = lines[section]
            if section is Section.SAID:
                reported = {*_ID.findall(texts[Section.REPORTED])}
                its_lines = [line for line in its_lines if str(line.event_id) not in reported]
            texts[section] = _section(section, its_lines, min(len(before) + rest, most)) or before
            rest -= len(texts[section]) - len(before)
            if section is Section.ASKED:
                rest += len(texts[Section.ORDERS])
                texts[Section.ORDERS] = ""
                lines[Section.ORDERS] = [
                    line for line in lines[Section.ORDERS] if line.text not in texts[section]
                ]
    texts[Section.CHANGED] += unseen
    body = "".join(texts.values())
    most = room + len(unseen) - len(body)
    if _OMITTED in body:
        most = min(most, int(_NAMES_SHARE * room))
    read, others = _lines_of_names(names, body, most)
    shown = {
        line.event_id: line for line in lines[Section.READ] if _with_id(line) in texts[Section.READ]
    } | read
    left_out = sum(line.event_id not in shown for line in lines[Section.READ])
    if shown:
        texts[Section.READ] = _section_text(
            Section.READ, [shown[event_id] for event_id in sorted(shown)], left_out
        )
    if others:
        texts[Section.NAMES] = _section_text(Section.NAMES, others)
    return title + "".join(texts.values())


def _lines(digest: Digest) -> dict[Section, list[DigestLine]]:
    lines = {section: list(digest.lines[section].values()) for section in Section}
    built, since = _lines_of_checks(digest)
    lines[Section.BUILT] = sorted([*lines[Section.BUILT], *built], key=lambda line: line.event_id)
    for section in (Section.BUILT, Section.REPORTED, Section.RAN):
        lines[section] = [_with_later_changes(line, digest.files) for line in lines[section]]
    lines[Section.BUILT] += since
    changed = (_describe_file(path, file) for path, file in digest.files.items())
    lines[Section.CHANGED] = sorted(changed, key=_is_product)
    lines[Section.ERRORS] = [_error_line(error, digest.files) for error in digest.errors.values()]
    if digest.said:
        lines[Section.SAID].append(digest.said._replace(text=" ".join(digest.said.text.split())))
    return lines


def _lines_of_checks(digest: Digest) -> tuple[list[DigestLine], list[DigestLine]]:
    files = (file for file in digest.files.items() if OF_EXAMPLE not in file[1].deeds)
    newest = max(files, key=lambda file: file[1].event_id, default=None)
    changed_in = newest[1].event_id if newest else digest.newest
    checks = sorted(digest.checks.items(), reverse=True)
    before = [
        DigestLine(f"last {kind}: {line.text}", line.event_id)
        for kind, line in checks
        if line.event_id <= changed_in
    ]
    if newest is None:
        return before, []
    kinds_since: dict[DigestLine, list[str]] = {}
    for kind, line in checks:
        if line.event_id > changed_in:
            kinds_since.setdefault(line, []).append(kind)
    since = f"since the last change, of {basename(newest[0])}"
    if not kinds_since:
        return before, [DigestLine(f"{since}: no test, lint or build command", changed_in)]
    check_kinds = {*chain(*kinds_since.values())}
    missing = [f"no {kind}" for kind in ("test", "lint") if not check_kinds & {kind, "check"}]
    ran = sorted(kinds_since, key=lambda line: line.event_id)
    parts = [f"{' and '.join(kinds_since[line])} {_with_id(line)}" for line in ran]
    return before, [DigestLine(f"{since}: {'; '.join([*missing, *parts])}", -1)]


def _with_later_changes(line: DigestLine, files: dict[str, ChangedFile]) -> DigestLine:
    # At most ``_FILES_SINCE`` files are searched.
    if not line.is_of_work:
        return line
    newest = islice(reversed(files.items()), _FILES_SINCE)
    changed = ", ".join(basename(path) for path, file in newest if file.event_id > line.event_id)
    if not changed:
        return line
    since = clip_line(f"changed since: {changed}", _SINCE_MAX)
    if line.text.startswith(AGENT_SAID):
        return line._replace(
            text=(
                f"{AGENT_SAID}"
                f" ({clip_line(since, _REPORT_SINCE_MAX)}){line.text.removeprefix(AGENT_SAID)}"
            )
        )
    return line._replace(text=f"{line.text}; {since}")


def _error_line(error: OpenError, files: dict[str, ChangedFile]) -> DigestLine:
    """Return the line of an open error. The line also names the files in the error that were
    changed since. Cost: the function searches all files that were changed after the error.
    """
    newer = takewhile(lambda each: each[1].event_id > error.event_id, reversed(files.items()))
    words = f"{error.subject} {error.text}"
    changed = ", ".join(
        f"{basename(path)} [{file.event_id}]" for path, file in newer if _is_named(path, words)
    )
    since = f"; changed since: {changed}" if changed else ""
    return DigestLine(error.text + since, error.event_id)


def _is_named(path: str, text: str) -> bool:
    named = re.findall(rf"(?<![\w.-])([^\s'\"`()=,;:]*{re.escape(basename(path))})(?![\w-])", text)
    return any(
        name == path
        or (not isabs(name) and path.endswith(f"/{name.removeprefix('./')}"))
        or (not isabs(path) and name.endswith(f"/{path}"))
        for name in named
    )


def _describe_file(path: str, file: ChangedFile) -> DigestLine:
    deeds = (deed if times == 1 else f"{deed} {times} times" for deed, times in file.deeds.items())
    applied = ", applied" if file.is_applied else ""
    committed = "" if file.committed_by is None else f", committed [{file.committed_by}]"
    sentence = f"{path}: {', '.join(deeds)}{committed}"
    if not file.line:
        return DigestLine(f"{sentence}{applied}", file.event_id)
    _, arrow, became = file.line.partition(" -> ")
    brief = f"{sentence}; last{applied}: … -> {became}" if arrow else ""
    return DigestLine(f"{sentence}; last{applied}: {file.line}", file.event_id, brief=brief)


def _cut(line: DigestLine, length_max: int) -> DigestLine:
    is_long = len(line.text) > length_max
    text = line.brief if is_long and line.brief else line.text
    return line._replace(text=clip_line(text, length_max))


def _is_product(line: DigestLine) -> bool:
    return not _SCRATCH.match(line.text)


def _section(section: Section, lines: Sequence[DigestLine], room: int) -> str:
    if not lines:
        return ""
    skipped = max(0, len(lines) - 1 - room // _LINE_LEAST)
    *older, newest = shown = [*lines[:1], *lines[1 + skipped :]]
    lengths = _LENGTHS.get(section, (_LINE_MAX,))
    for length in lengths:
        most_of_first = max(length, room // 4 * (section is Section.ASKED))
        cut = (_cut(line, most_of_first if line is lines[0] else length) for line in older)
        shown = [*cut, newest]
        if len(listed := _section_text(section, shown, skipped)) <= room:
            return listed
    first = shown[: min(len(older), section in _FIRST_STAYS)]
    for begin in (first, []):
        others = shown[len(begin) :]
        sizes = accumulate(len(_with_id(line)) + len(_BULLET) for line in reversed(others))
        count = bisect_right([*sizes], room - len(_section_text(section, begin, len(lines))))
        if count:
            return _section_text(section, [*begin, *others[-count:]], skipped + len(others) - count)
        left_out = skipped + len(others) - 1
        length = len(newest.text) + room - len(_section_text(section, [*begin, newest], left_out))
        if length >= lengths[-1]:
            text = truncate(newest.text, length).replace("\n", " ")
            return _section_text(section, [*begin, DigestLine(text, newest.event_id)], left_out)
    return ""


def _section_text(section: Section, lines: Sequence[DigestLine], left_out: int = 0) -> str:
    note = [f"({left_out}{_OMITTED}"] if left_out else []
    if section is Section.CHANGED:  # Files that the agent made to try something go last.
        lines = sorted(lines, key=_is_product, reverse=True)
    return _BULLET.join((f"\n\n## {section.value}", *note, *map(_with_id, lines)))


def _with_id(line: DigestLine) -> str:
    return line.text if line.event_id < 0 else f"{line.text} [{line.event_id}]"


def _lines_of_names(
    names: Sequence[tuple[str, NamePlace]], body: str, room: int
) -> tuple[dict[int, DigestLine], list[DigestLine]]:
    # The first result has the names in outputs that the agent read. The second result has all other
    # names, in at most a third of the length of ``body``.
    body_words = _words(body)
    by_event: dict[tuple[int, str], list[str]] = {}
    room -= len(_section_text(Section.NAMES, ())) + len(_section_text(Section.READ, ()))
    room_of_others = len(body) // 3 - len(_section_text(Section.NAMES, ()))
    for name, stood in names:
        place = stood.event_id, stood.read
        size = len(stood.line) + (
            len(_BETWEEN) if place in by_event else _ID_LENGTH + len(stood.read)
        )
        if name in body_words or (size > room_of_others and not stood.read):
            continue
        room -= size
        if room < 0:
            break
        room_of_others -= 0 if stood.read else size
        body_words |= _words(stood.line)
        by_event.setdefault(place, []).append(stood.line)
    joined = [
        (*place, _BETWEEN.join(lines).replace(_CUT_TWICE, f" {CUT} "))
        for place, lines in sorted(by_event.items())
    ]
    of_read = {
        event_id: DigestLine(f"{read}: {text}", event_id) for event_id, read, text in joined if read
    }
    return of_read, [DigestLine(text, event_id) for event_id, read, text in joined if not read]


def _newness(stood: NamePlace) -> int:
    return stood.event_id + _USED_IS_NEWER * stood.is_used


def _words(text: str) -> set[str]:
    return {word.rstrip("./:-\\") for word in _WORD.findall(text)}
