"""This module writes a digest in a limited number of characters. The sections share the characters.
A section begins with the number of lines that it leaves out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, islice
from posixpath import basename

from foldlog.condensers.prompts.rendering import clip_line, truncate
from foldlog.condensers.strategies.digest.facts import Section
from foldlog.condensers.strategies.digest.fold import (
    TITLE,
    ChangedFile,
    Digest,
    DigestLine,
    NamePlace,
)
from foldlog.condensers.strategies.digest.names import CUT, words_in
from foldlog.condensers.strategies.user_words import SENTENCE_END

LENGTH_LEAST = 300
"""The section of requests may always have ``LENGTH_LEAST`` characters."""

SHARES: Mapping[Section, float] = {
    Section.ASKED: 0.4,
    Section.REFUSED: 0.05,
    Section.CHANGED: 0.12,
    Section.BUILT: 0.08,
    Section.REPORTED: 0.12,
    Section.TASKS: 0.06,
    Section.ERRORS: 0.06,
    Section.EARLIER: 0.2,
    Section.SAID: 0.1,
    Section.RARE: 0.03,
    Section.RAN: 0.09,
    Section.CALLED: 0.03,
    Section.READ: 0.02,
}
"""The share of a digest that each section may use, with the most important section first."""
_NAMES_SHARE = 0.28
"""The share of a digest for names with the words around them. This share is
exceeded only if the lines of all sections fit.
"""
_USED_IS_NEWER = 200
"""A name that the user or the agent wrote ranks as if it were ``_USED_IS_NEWER`` events newer."""
_FILES_SINCE = 20
_SINCE_MAX = 90
_LINE_LEAST = 8
_LINE_MAX = 1_000
_BULLET = "\n- "
_BETWEEN = " | "
_CUT_TWICE = f"{CUT}{_BETWEEN}{CUT}"
_CUT_BETWEEN = 3
"""How many characters a cut between two sentences takes at most."""
_OMITTED = " earlier left out)"
_ID_LENGTH = 14

_LENGTHS: Mapping[Section, Sequence[int]] = {
    Section.ASKED: (2_000, 1_000, 500, 320, 240, 160, 80),
    Section.REPORTED: (2_000, 1_000, 500, 300, 160),
    Section.SAID: (2_000, 1_000, 500, 300),
    Section.EARLIER: (300, 120),
}
"""The lengths to which the older lines of a section may be cut. The layout takes the longest length
with which all lines fit. If the lines do not fit with the shortest length, some lines are left out.
"""


def text_of(digest: Digest, max_length: int) -> str:
    """Return the text of a digest. First every section gets its share, and the section of requests
    gets at least ``LENGTH_LEAST``. Then all sections except the requests get the remaining
    characters, in the order of their importance, and the section of requests gets them last: so a
    long request uses only characters that no other section needs. If a section is too small for all
    its lines, its newest lines stay in the digest. The first request stays in the digest too, if
    there is room. If the newest request or the agent's last text is too long, only its beginning
    and its end are shown. The digest always says how many files were changed.
    """
    title = f"{TITLE}{digest.count} events"
    if digest.count:
        title += f", up to [{digest.newest}]; the conversation goes on"
    lines = _lines(digest)
    room = max_length - len(title)
    texts = dict.fromkeys(Section, "")
    names = sorted(
        digest.names.items(),
        key=lambda named: named[1].event_id + _USED_IS_NEWER * named[1].is_used,
        reverse=True,
    )
    names_length = sum(len(stood.line) + _ID_LENGTH for _, stood in names)
    if digest.files:
        texts[Section.CHANGED] = _section_text(Section.CHANGED, (), len(digest.files))
    rest = room - min(int(_NAMES_SHARE * room), names_length) - len(texts[Section.CHANGED])
    shares = {section: int(share * room) for section, share in SHARES.items()}
    shares[Section.ASKED] = max(shares[Section.ASKED], LENGTH_LEAST)
    asked, *others = dict.fromkeys(SHARES, room).items()
    for section, most in (*shares.items(), *others, asked):
        before = texts[section]
        texts[section] = _section(section, lines[section], min(len(before) + rest, most)) or before
        rest -= len(texts[section]) - len(before)
    body = "".join(texts.values())
    most = room - len(body)
    if _OMITTED in body:
        most = min(most, int(_NAMES_SHARE * room))
    if lines_of_names := _lines_of_names(names, body, most):
        texts[Section.NAMES] = _section_text(Section.NAMES, _with_log_ids(lines_of_names, digest))
    return title + "".join(texts.values())


def _lines(digest: Digest) -> dict[Section, list[DigestLine]]:
    """Return the lines of each section, with the ids of their events in the log."""
    lines = {section: list(digest.lines[section].values()) for section in Section}
    lines[Section.BUILT] += digest.checks.values()
    for section in (Section.BUILT, Section.REPORTED):
        lines[section] = sorted(
            (_with_later_changes(line, digest.files) for line in lines[section]),
            key=lambda line: line.event_id,
        )
    lines[Section.CHANGED] = [_describe_file(path, file) for path, file in digest.files.items()]
    lines[Section.ERRORS] = [*digest.errors.values()]
    by_event: dict[int, list[str]] = {}
    for line in lines[Section.RARE]:
        by_event.setdefault(line.event_id, []).append(line.text)
    lines[Section.RARE] = [
        DigestLine(_BETWEEN.join(texts), event_id) for event_id, texts in by_event.items()
    ]
    if digest.said:
        lines[Section.SAID].append(digest.said._replace(text=" ".join(digest.said.text.split())))
    return {section: _with_log_ids(listed, digest) for section, listed in lines.items()}


def _with_log_ids(lines: Sequence[DigestLine], digest: Digest) -> list[DigestLine]:
    return [
        line._replace(event_id=digest.log_ids.get(line.event_id, line.event_id)) for line in lines
    ]


def _with_later_changes(line: DigestLine, files: dict[str, ChangedFile]) -> DigestLine:
    # At most ``_FILES_SINCE`` files are searched.
    newest = islice(reversed(files.items()), _FILES_SINCE)
    changed = ", ".join(basename(path) for path, file in newest if file.event_id > line.event_id)
    if not (line.is_of_work and changed):
        return line
    since = clip_line(f"changed since: {changed}", _SINCE_MAX)
    return line._replace(text=f"({since}) {line.text}")


def _describe_file(path: str, file: ChangedFile) -> DigestLine:
    deeds = (deed if times == 1 else f"{deed} {times} times" for deed, times in file.deeds.items())
    last = f"; last: {file.line}" if file.line else ""
    return DigestLine(f"{path}: {', '.join(deeds)}{last}", file.event_id)


def _cut(line: DigestLine, length_max: int) -> DigestLine:
    """Cut a line to its best sentences, in their order, or to its beginning if none has room."""
    if len(line.text) <= length_max:
        return line
    sentences = SENTENCE_END.split(line.text)
    chosen = set[int]()
    room = length_max
    for place in line.ranked:
        room -= len(sentences[place]) + _CUT_BETWEEN
        if room < 0:
            break
        chosen.add(place)
    if not chosen:
        return line._replace(text=clip_line(line.text, length_max))
    parts = groupby(range(len(sentences)), key=chosen.__contains__)
    texts = (
        " ".join(sentences[place] for place in places) if stay else CUT for stay, places in parts
    )
    return line._replace(text=" ".join(texts))


def _section(section: Section, lines: Sequence[DigestLine], room: int) -> str:
    """Return the text of a section with at most ``room`` characters. The first request and the
    newest line stay longest. The text is empty if not even these fit.
    """
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
    first = shown[: min(len(older), section is Section.ASKED)]
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
    return _BULLET.join((f"\n\n## {section.value}", *note, *map(_with_id, lines)))


def _with_id(line: DigestLine) -> str:
    return line.text if line.event_id < 0 else f"{line.text} [{line.event_id}]"


def _lines_of_names(
    names: Sequence[tuple[str, NamePlace]], body: str, room: int
) -> list[DigestLine]:
    """Return the names that ``body`` does not have, in a line for each event, the oldest event
    first. If ``room`` is too small for all, the last of ``names`` are left out.
    """
    shown = words_in(body)
    by_event: dict[int, list[str]] = {}
    room -= len(_section_text(Section.NAMES, ()))
    for name, stood in names:
        if name in shown:
            continue
        is_first = stood.event_id not in by_event
        room -= len(stood.line) + (_ID_LENGTH if is_first else len(_BETWEEN))
        if room < 0:
            break
        shown |= words_in(stood.line)
        by_event.setdefault(stood.event_id, []).append(stood.line)
    return [
        DigestLine(_BETWEEN.join(lines).replace(_CUT_TWICE, f" {CUT} "), event_id)
        for event_id, lines in sorted(by_event.items())
    ]
