"""Write a digest in a number of characters: sections share the room, and each counts what it leaves out."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from foldlog.condensers.prompts.rendering import clipped, truncated
from foldlog.condensers.strategies.digest.facts import Section
from foldlog.condensers.strategies.digest.fold import TITLE, ChangedFile, Digest, DigestLine, NamePlace

LENGTH_LEAST = 300
"""The length of the shortest digests, first for the newest request."""

_ID = re.compile(r" \[(\d+)\]$", re.MULTILINE)

SHARES: Mapping[Section, float] = {
    Section.ASKED: 0.2,
    Section.ORDERS: 0.15,
    Section.CHANGED: 0.12,
    Section.BUILT: 0.18,
    Section.TASKS: 0.06,
    Section.ERRORS: 0.06,
    Section.SAID: 0.1,
    Section.RAN: 0.09,
    Section.EARLIER: 0.2,
    Section.CALLED: 0.03,
    Section.READ: 0.02,
    Section.SHOWN: 0.02,
}
"""The share of a digest that is reserved for a section, the most important section first."""
_NAMES_SHARE, _SEEN_SHARE = 0.12, 0.12
"""The largest part of a digest that is names, and the part that is kept for lines with names: these get more only where
the other sections leave room.
"""
_LINE_LEAST = 4
"""No line takes fewer characters."""
_ID_LENGTH = 40
"""More than the id of an event takes at the end of a line, or a heading."""
_BESIDE = 16
"""How many characters of its line stand on each side of a name."""
_WORD = re.compile(r"(?:[^\W_]|[_~/.:\\-])+")

_ROUNDS = ((1, 1), (2, 1.6), (1_000, 1.6), (1_000, 1_000))
"""How many times its share a section may have, and the section of requests: a long one takes only room that is left."""

_LENGTHS: Mapping[Section, Sequence[int]] = {
    Section.ORDERS: (300, 160),
    Section.ASKED: (2_000, 1_000, 500, 320, 240, 160),
    Section.BUILT: (2_000, 1_000, 500, 300, 160),
    Section.SAID: (2_000, 1_000, 500, 300),
    Section.CHANGED: (300, 120),
    Section.EARLIER: (300, 120),
}
"""Lengths to which all lines but the newest are cut, in turn. If the shortest does not fit, lines are omitted."""
_FIRST_STAYS = frozenset((Section.ORDERS, Section.ASKED))


def text_of(digest: Digest, max_length: int) -> str:
    """Return the digest in at most ``max_length`` characters.

    Every section gets its share, requests at least the room for the newest; then up to twice its share, then the
    remaining room, the most important section first, and the requests last. Within a section the newest lines stay.
    The newest request and the agent's last words stay whole, or their beginning and end as far as there is room. The
    first request and order stay too, and the beginnings of others. An order that stands among the requests is not
    repeated. How many files were changed is always said.
    """
    title = f"{TITLE}{digest.count} events"
    lines = _lines(digest)
    room = max_length - len(title)
    texts = dict.fromkeys(Section, "")
    names = sorted(digest.names.items(), key=lambda named: (not named[1].is_used, -named[1].event_id))
    wanted = sum(min(len(stood.line), len(name) + 2 * _BESIDE) + _ID_LENGTH for name, stood in names)
    least = _listed(Section.CHANGED, (), len(digest.files)) if digest.files else ""
    texts[Section.CHANGED] = least
    left = room - min(int((_NAMES_SHARE + _SEEN_SHARE) * room), wanted) - len(least)
    for times, asked_times in _ROUNDS:
        for section, share in SHARES.items():
            most = int(share * room * (asked_times if section is Section.ASKED else times))
            most, before = max(most, LENGTH_LEAST * (section is Section.ASKED)), texts[section]
            texts[section] = _section(section, lines[section], min(len(before) + left, most)) or before
            left -= len(texts[section]) - len(before)
            if section is Section.ASKED:
                left += len(texts[Section.ORDERS])
                texts[Section.ORDERS] = ""
                lines[Section.ORDERS] = [line for line in lines[Section.ORDERS] if line.text not in texts[section]]
    body = "".join(texts.values())
    body += _grouped(Section.SEEN, names, body, int(room * (1 - _NAMES_SHARE)) - len(body))
    names_room = min(room - len(body), int(len(body) * _NAMES_SHARE / (1 - _NAMES_SHARE)))
    return title + body + _grouped(Section.NAMES, names, body, names_room)


def ids_in(text: str) -> set[int]:
    """Return the ids of the events that the lines of a digest name."""
    return set(map(int, _ID.findall(text)))


def ids_of(digest: Digest) -> set[int]:
    """Return the ids of the events that have a line in a digest without a limit, not counting names."""
    return {line.event_id for section, lines in _lines(digest).items() for line in lines}


def _lines(digest: Digest) -> dict[Section, list[DigestLine]]:
    lines = {section: list(digest.lines[section].values()) for section in Section}
    lines[Section.CHANGED] = [
        DigestLine(_file(path, file, digest.check), file.event_id) for path, file in digest.files.items()
    ]
    lines[Section.ERRORS] = [DigestLine(error.text, error.event_id) for error in digest.errors.values()]
    if digest.check is not None:
        lines[Section.BUILT].append(DigestLine(f"last check: {digest.check.text}", digest.check.event_id))
    return lines


def _file(path: str, file: ChangedFile, check: DigestLine | None) -> str:
    """Return what was done to a file, with a line of its newest text."""
    times = f" ({file.times} changes)" if file.times > len(file.deeds) else ""
    unchecked = "; not checked since" if check is not None and check.event_id < file.event_id else ""
    return f"{path}: {', '.join(file.deeds)}{times}{unchecked}" + (f"; last: {file.line}" if file.line else "")


def _section(section: Section, lines: Sequence[DigestLine], room: int) -> str:
    """Return one section with its heading in at most ``room`` characters; empty if nothing fits."""
    if not lines:
        return ""
    first = lines[: min(len(lines) - 1, section in _FIRST_STAYS)]
    hidden = max(0, len(lines) - len(first) - max(1, room // _LINE_LEAST))  # they can never fit
    *older, newest = [*first, *lines[len(first) + hidden :]]
    lines = [*older, newest]
    lengths = _LENGTHS.get(section, ())
    for length in lengths:
        lines = [*(DigestLine(clipped(line.text, length), line.event_id) for line in older), newest]
        if len(listed := _listed(section, lines, hidden)) <= room:
            return listed
    first = lines[: len(first)]

    def without(dropped: int) -> str:
        return _listed(section, [*first, *lines[len(first) + dropped :]], hidden + dropped)

    if len(without(0)) <= room:
        return without(0)
    # The first line to go may be shorter than the note on it; each further one makes the section shorter.
    most = len(lines) - len(first)
    dropped = bisect_left(range(most), -room, lo=1, key=lambda dropped: -len(without(dropped)))
    if dropped < most:
        return without(dropped)
    for kept in ([*first, newest], [newest]):
        left_out = hidden + len(lines) - len(kept)
        over = len(listed := _listed(section, kept, left_out)) - room
        if over <= 0:
            return listed
        if lengths and len(newest.text) - over >= lengths[-1]:
            text = truncated(newest.text, len(newest.text) - over).replace("\n", " ")
            return _listed(section, [*kept[:-1], DigestLine(text, newest.event_id)], left_out)
    return ""


def _listed(section: Section, lines: Sequence[DigestLine], left_out: int = 0) -> str:
    note = [f"({left_out} earlier left out)"] if left_out else []
    return "\n- ".join((f"\n\n## {section.value}", *note, *map(_with_id, lines)))


def _with_id(line: DigestLine) -> str:
    return line.text if line.event_id < 0 else f"{line.text} [{line.event_id}]"


def _grouped(section: Section, names: Sequence[tuple[str, NamePlace]], body: str, room: int) -> str:
    """Return the first of ``names`` that fit and that ``body`` does not have, in one line for each event: alone, or in
    the words around them.
    """
    known = _words(body)
    by_event: dict[int, list[str]] = {}
    between = " " if section is Section.NAMES else " | "
    room -= len(_listed(section, ()))
    for name, stood in names:
        if name in known:
            continue
        text = name if section is Section.NAMES else _around(stood.line, name)
        room -= len(text) + (len(between) if stood.event_id in by_event else len(f"\n-  [{stood.event_id}]"))
        if room < 0:
            break
        known |= _words(text)
        by_event.setdefault(stood.event_id, []).append(text)
    grouped = [DigestLine(between.join(texts), event_id) for event_id, texts in sorted(by_event.items())]
    return _listed(section, grouped) if grouped else ""


def _words(text: str) -> set[str]:
    return {word.rstrip("./:-\\") for word in _WORD.findall(text)}


def _around(line: str, name: str) -> str:
    """Return the words of a line around a name."""
    place = line.find(name)
    start, end = max(0, place - _BESIDE), place + len(name) + _BESIDE
    if start:
        start = line.find(" ", start, place) + 1 or start
    if end < len(line):
        end = max(line.rfind(" ", place + len(name), end), place + len(name))
    return line[start:end]
