"""A summary that needs no model: a digest of the facts in the events, deterministic and bounded.

A digest is a text of headings and lines. A model reads it as it is, and the next digest takes it apart again: what an
earlier one held is carried forward fact by fact, and only what does not fit is left out, the least important first.

    # Digest of 57 events
    ## Asked by the user
    - fix the date parser; no new dependencies
    ## Commands run
    - (3 earlier left out)
    - `pytest -q` → exit 1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from condensers.errors import InvalidCondenser
from condensers.prompts.rendering import clipped, truncated
from condensers.strategies.digest_facts import Section, facts, subject_of
from condensers.strategies.summarizing import SummarizingCondenser, Summary
from eventstore.events import CondensationSummary, Event

__all__ = ["Digest", "DigestCondenser"]

_LENGTH_MIN = 500
_LENGTH_LEAST = 120
"""Below the one no user may set it, below the other no digest is shortened where an agent has little room."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DigestCondenser(SummarizingCondenser):
    """Summarizes by a digest of at most ``max_length`` characters. For the rest see ``SummarizingCondenser``."""

    type = "digest"

    max_length: int = 6_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < _LENGTH_MIN:
            raise InvalidCondenser(f"max_length ({self.max_length}) must be at least {_LENGTH_MIN} characters")

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        return Summary(Digest.of(events).text(self.max_length))

    def shorter(self, text: str) -> str | None:
        digest = Digest.parse(text)
        if digest is None or len(text) <= _LENGTH_LEAST:
            return None
        return digest.text(max(_LENGTH_LEAST, len(text) * 2 // 3))


@dataclass(frozen=True, slots=True)
class Digest:
    """The facts of ``count`` events. ``lines`` are those of each section by what they are about, oldest first, and
    ``left_out`` says how many more there were; ``earlier`` are the texts of summaries that are no digests.
    """

    count: int
    lines: Mapping[Section, Mapping[str, str]]
    left_out: Mapping[Section, int] = field(default_factory=dict)
    earlier: str = ""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Digest:
        """The digest of ``events``, earlier digests among them taken apart. Cost: the events, once."""
        count, earlier = 0, list[str]()
        lines: dict[Section, dict[str, str]] = {section: {} for section in Section}
        left_out = dict.fromkeys(Section, 0)
        plain: list[Event] = []
        for event in events:
            if not isinstance(event, CondensationSummary):
                count += 1
                plain.append(event)
                continue
            before = cls.parse(event.content)
            if before is None:
                earlier += filter(None, [event.content.strip()])
                continue
            count += before.count
            earlier += [before.earlier] if before.earlier else []
            for section in Section:
                lines[section] |= before.lines[section]
                left_out[section] += before.left_out[section]
        for section, subject, text in facts(plain):
            if section is Section.TASKS and not subject:
                lines[section].clear()
            lines[section].pop(subject, None)
            if text is not None:
                lines[section][subject] = text
        return cls(count, lines, left_out, "\n\n".join(earlier))

    @classmethod
    def parse(cls, text: str) -> Digest | None:
        """The digest that ``text`` is of; None where it is something else."""
        title, *rest = text.splitlines() or [""]
        titled = _TITLE.fullmatch(title)
        if titled is None:
            return None
        lines: dict[Section, dict[str, str]] = {section: {} for section in Section}
        left_out = dict.fromkeys(Section, 0)
        earlier: list[str] = []
        section: Section | None = None
        for line in filter(None, rest):
            if line.startswith("## "):
                section = _SECTIONS.get(line[3:])
            elif line.startswith("> "):
                earlier.append(line[2:])
            elif section is None or not line.startswith("- "):
                return None
            elif omitted := _LEFT_OUT.fullmatch(line):
                left_out[section] += int(omitted[1])
            else:
                lines[section][subject_of(section, line[2:])] = line[2:]
        return cls(int(titled[1]), lines, left_out, "\n".join(earlier))

    def text(self, max_length: int) -> str:
        """The digest in at most ``max_length`` characters.

        Every section may take its share and what those before it left over; what is left at the end goes to those that
        were cut, in turn. Within a section the newest lines stay; of what the user asked, every line stays as long as
        there is room for its beginning.
        """
        title = f"# Digest of {self.count} events"
        texts: dict[Section | str, str] = {}
        left = max_length - len(title)
        spare = 0.0
        for section, share in _SHARES.items():
            spare += share * left
            texts[section] = self._section(section, int(spare))
            spare -= len(texts[section])
        left -= sum(map(len, texts.values()))
        for section, text in texts.items():
            texts[section] = self._section(section, len(text) + left)
            left -= len(texts[section]) - len(text)
        return title + "".join(texts[section] for section in (*Section, _EARLIER))

    def _section(self, section: Section | str, room: int) -> str:
        """One section with its heading, in at most ``room`` characters; nothing where there is too little. Cost: its
        lines, once.
        """
        if not isinstance(section, Section):
            return _quoted(self.earlier, room)
        lines = list(self.lines[section].values())
        if section is Section.ASKED:
            lines = _shortened(lines, room)
        first = 1 if section is Section.ASKED else 0  # what the user asked first is what it is all about
        left_out = self.left_out[section]
        length = len(_listed(section, lines, 0))
        for dropped in range(len(lines)):
            if length + _length_of_note(left_out + dropped) <= room:
                return _listed(section, lines[:first] + lines[first + dropped :], left_out + dropped)
            length -= sum(len(_item(line)) for line in lines[first + dropped : first + dropped + 1])
        return ""


_EARLIER = "Earlier summary"

_SECTIONS = {section.value: section for section in Section}
_TITLE = re.compile(r"# Digest of (\d+) events")
_LEFT_OUT = re.compile(r"- \((\d+) earlier left out\)")

_SHARES: Mapping[Section | str, float] = {
    Section.ASKED: 0.3,
    Section.TASKS: 0.15,
    _EARLIER: 0.15,
    Section.ERRORS: 0.1,
    Section.CHANGED: 0.1,
    Section.RAN: 0.06,
    Section.CALLED: 0.06,
    Section.SAID: 0.05,
    Section.READ: 0.03,
}
"""The part of a digest that is set apart for a section, the most important first."""

_ASK_LENGTHS = (2_000, 1_000, 500, 250, 120, 60)


def _listed(section: Section, lines: Sequence[str], left_out: int) -> str:
    note = [_note(left_out)] if left_out else []
    return "".join([f"\n\n## {section.value}", *map(_item, (*note, *lines))])


def _item(line: str) -> str:
    return f"\n- {line}"


def _note(left_out: int) -> str:
    return f"({left_out} earlier left out)"


def _length_of_note(left_out: int) -> int:
    return len(_item(_note(left_out))) if left_out else 0


def _shortened(lines: list[str], room: int) -> list[str]:
    """The lines, each cut to what lets them all fit; to the shortest where nothing does."""
    for length in _ASK_LENGTHS:
        shortened = [clipped(line, length) for line in lines]
        if len(_listed(Section.ASKED, shortened, 0)) <= room:
            return shortened
    return [clipped(line, _ASK_LENGTHS[-1]) for line in lines]


def _quoted(text: str, room: int) -> str:
    heading = f"\n\n## {_EARLIER}"
    lines = text.splitlines()
    quoted = "".join(f"\n> {line}" for line in truncated(text, room - len(heading) - 3 * (len(lines) + 3)).splitlines())
    return heading + quoted if text and len(heading + quoted) <= room else ""
