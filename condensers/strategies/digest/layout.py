"""Write a digest in a number of characters: sections share the room, and each counts what it leaves out."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from foldlog.condensers.prompts.rendering import clipped, truncated
from foldlog.condensers.strategies.digest.facts import Section
from foldlog.condensers.strategies.digest.fold import TITLE, ChangedFile, Digest, DigestLine, NamePlace

LENGTH_LEAST = 300
"""The length of the shortest digests, first for the newest request."""

_EARLIER = "Earlier summary"
_EARLIER_LEAST = 120
"""The number of characters that are kept for each earlier summary but the newest."""
_BETWEEN = "\n> "
_ID = re.compile(r" \[(\d+)\]$", re.MULTILINE)

SHARES: Mapping[Section | str, float] = {
    Section.ASKED: 0.2,
    Section.ORDERS: 0.15,
    Section.CHANGED: 0.12,
    Section.BUILT: 0.1,
    Section.TASKS: 0.06,
    Section.ERRORS: 0.06,
    Section.SAID: 0.08,
    Section.RAN: 0.06,
    _EARLIER: 0.33,
    Section.CALLED: 0.03,
    Section.READ: 0.02,
    Section.SHOWN: 0.02,
}
"""The share of a digest that is reserved for a section, the most important section first."""
_NAMES_SHARE, _SEEN_SHARE = 0.24, 0.4
"""The largest part of a digest that is names, and the part that is kept for lines with names."""
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
}
"""Lengths to which all lines but the newest are cut, in turn. If the shortest does not fit, lines are omitted."""
_FIRST_STAYS = frozenset((Section.ORDERS, Section.ASKED))


def text_of(digest: Digest, max_length: int) -> str:
    """Return the digest in at most ``max_length`` characters.

    Earlier summaries have their share. Of the rest every section gets its share, requests at least the room for the
    newest; then up to twice its share, then the remaining room, the most important section first, and the requests
    last. Within a section the newest lines stay. The newest request and the agent's last words stay whole, or their
    beginning and end as far as there is room. The first request and order stay too, and the beginnings of others. An
    order that stands among the requests is not repeated. How many files were changed is always said.
    """
    title = f"{TITLE}{digest.count} events"
    lines = _lines(digest)
    room = max_length - len(title)
    texts = dict.fromkeys(SHARES, "")
    earlier = list(digest.earlier.values())
    texts[_EARLIER] = _quoted(earlier, int(SHARES[_EARLIER] * room))
    room -= len(texts[_EARLIER])
    names = sorted(digest.names.items(), key=lambda named: (not named[1].is_used, -named[1].event_id))
    wanted = sum(min(len(stood.line), len(name) + 2 * _BESIDE) + _ID_LENGTH for name, stood in names)
    seen_room = min(int(_SEEN_SHARE * room), wanted)
    names_room = min(int(_NAMES_SHARE * room), wanted)
    least = _listed(Section.CHANGED, (), len(lines[Section.CHANGED])) if lines[Section.CHANGED] else ""
    texts[Section.CHANGED] = least
    left = room - names_room - seen_room - len(least)
    for times, asked_times in _ROUNDS:
        for section, share in SHARES.items():
            most = int(share * room * (asked_times if section is Section.ASKED else times))
            most, before = max(most, LENGTH_LEAST * (section is Section.ASKED)), texts[section]
            fitting = min(len(before) + left, most)
            if section is Section.ORDERS:
                orders = [line for line in lines[section] if line.text not in texts[Section.ASKED]]
                texts[section] = _section(section, orders, fitting)
            elif isinstance(section, Section):
                texts[section] = _section(section, lines[section], fitting) or before
            else:
                texts[section] = max(before, _quoted(earlier, fitting), key=len)
            left -= len(texts[section]) - len(before)
    body = "".join(texts.get(section, "") for section in (*Section, _EARLIER))
    body += _seen(names, body, seen_room + left)
    names_room = min(max_length - len(title) - len(body), int(len(body) * _NAMES_SHARE / (1 - _NAMES_SHARE)))
    return title + body + _names(names, body, names_room)


def ids_in(text: str) -> set[int]:
    """Return the ids of the events that the lines of a digest name."""
    return set(map(int, _ID.findall(text)))


def ids_of(digest: Digest) -> set[int]:
    """Return the ids of the events of which a digest without a limit has a line, names apart."""
    return {line.event_id for section, lines in _lines(digest).items() if section is not Section.SEEN for line in lines}


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


def _section(section: Section | str, lines: Sequence[DigestLine], room: int) -> str:
    """Return one section with its heading in at most ``room`` characters; empty if nothing fits."""
    if not lines or not isinstance(section, Section):
        return ""
    *older, newest = lines
    lengths = _LENGTHS.get(section, ())
    for length in lengths:
        lines = [*(DigestLine(clipped(line.text, length), line.event_id) for line in older), newest]
        if len(listed := _listed(section, lines)) <= room:
            return listed
    first = lines[: min(len(older), section in _FIRST_STAYS)]

    def without(dropped: int) -> str:
        return _listed(section, [*first, *lines[len(first) + dropped :]], dropped)

    if len(without(0)) <= room:
        return without(0)
    # The first line to go may be shorter than the note on it; each further one makes the section shorter.
    most = len(lines) - len(first)
    dropped = bisect_left(range(most), -room, lo=1, key=lambda dropped: -len(without(dropped)))
    if dropped < most:
        return without(dropped)
    for kept in ([*first, newest], [newest]):
        left_out = len(lines) - len(kept)
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


def _seen(names: Sequence[tuple[str, NamePlace]], body: str, room: int) -> str:
    """Return the lines in which names stood last: for the first of those that the rest of a digest does not have."""
    known = _words(body)
    lines: list[DigestLine] = []
    room -= len(_listed(Section.SEEN, ()))
    events: set[int] = set()
    for name, stood in names:
        if name in known:
            continue
        excerpt = _around(stood.line, name)
        room -= len(excerpt) + (3 if stood.event_id in events else len(f"\n-  [{stood.event_id}]"))
        if room < 0:
            break
        events.add(stood.event_id)
        known |= _words(excerpt)
        lines.append(DigestLine(excerpt, stood.event_id))
    return _grouped(Section.SEEN, lines, " | ")


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


def _names(names: Sequence[tuple[str, NamePlace]], body: str, room: int) -> str:
    """Return the names that the rest of a digest does not have, the first that fit."""
    known = _words(body)
    lines: list[DigestLine] = []
    room -= len(_listed(Section.NAMES, ()))
    events: set[int] = set()
    for name, stood in names:
        if name in known:
            continue
        room -= len(name) + (1 if stood.event_id in events else len(f"\n-  [{stood.event_id}]"))
        if room < 0:
            break
        events.add(stood.event_id)
        lines.append(DigestLine(name, stood.event_id))
    return _grouped(Section.NAMES, lines, " ")


def _grouped(section: Section, lines: Sequence[DigestLine], between: str) -> str:
    """Return short texts in one line for each event that has them."""
    by_event: dict[int, list[str]] = {}
    for line in lines:
        by_event.setdefault(line.event_id, []).append(line.text)
    grouped = [DigestLine(between.join(texts), event_id) for event_id, texts in sorted(by_event.items())]
    return _listed(section, grouped) if grouped else ""


def _quoted(texts: Sequence[str], room: int) -> str:
    """Return earlier summaries in at most ``room`` characters: the newest whole if it fits beside the least of each
    older one, of the others the beginning and the end.
    """
    heading, quotes = f"\n\n## {_EARLIER}", list[str]()
    room -= len(heading) - len(_BETWEEN)  # before the first there is none
    for older in reversed(range(len(texts))):
        most = max(room // (older + 1), 0 if quotes else room - older * _EARLIER_LEAST)
        quotes.append(_quote(texts[older], most - len(_BETWEEN)))
        room -= len(quotes[-1]) + len(_BETWEEN)
    return heading + _BETWEEN.join(filter(None, reversed(quotes))) if any(quotes) else ""


def _quote(text: str, room: int) -> str:
    def cut(limit: int) -> str:
        return "".join(f"\n> {line}" for line in truncated(text, limit).splitlines() if line.strip())

    whole = cut(len(text))  # may be shorter than the text with a note on what little is left out
    limits = range(1, min(len(text), room) + 1)
    return whole if len(whole) <= room else cut(bisect_right(limits, room, key=lambda limit: len(cut(limit))))
