"""A source that is edited, cut, grown, put back and repeated at random, imported, used, forked, redacted and sealed.

Each line says one word of its own. After each step: no word that was redacted stands in a block, an event, a line, sums
or an answer of the search; what is stored is what was imported; and the events of the file's source are those of its
bytes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest

from foldlog import Histories
from foldlog._archive.importing import Failed, Import, SourceRefused
from foldlog._archive.stored import raw
from foldlog.eventstore import Event
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.sources.tables import Source, Sources
from tests.foldlog.archive.imports import events_of, in_memory, new_store


class Model:
    STEPS: ClassVar = {
        "edit": 3, "space": 1, "cut": 2, "grow": 4, "back": 2, "repeat": 2, "use": 3, "redact": 2, "fork": 1, "erase":
        1, "rekey": 1, }  # fmt: skip

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.path = random.Random(seed), folder / f"{seed}.jsonl"
        self.format, self.session = self.random.choice(["claude-code", "codex"]), f"s{seed}"
        self.store = new_store()
        self.words = dict[str, str]()
        self.last: str | None = None
        self.lines = [self.first(), *(self.line() for _ in range(6))]
        self.versions = [self.lines[:]]
        self.gone, self.forgotten, self.twice, self.erased = set[str](), set[str](), set[str](), False
        self.log = list[str]()

    # -- the file -----------------------------------------------------------------------------------------------------

    def first(self) -> str:
        at = "2026-01-05T09:00:00.000Z"
        if self.format == "codex":
            meta = {"id": self.session, "cwd": "/"}
            return json.dumps({"timestamp": at, "type": "session_meta", "payload": meta})
        return json.dumps({"type": "summary", "summary": "t", "leafUuid": "x", "sessionId": self.session})

    def line(self) -> str:
        word, role = f"w{self.random.getrandbits(96):024x}", self.random.choice(["user", "assistant"])
        at = f"2026-01-05T09:00:{self.random.randrange(60):02}.000Z"
        if self.format == "codex":
            content = [{"type": "input_text", "text": f"say {word}"}]
            record = {"timestamp": at, "type": "response_item",
                      "payload": {"type": "message", "role": role, "content": content}}  # fmt: skip
        else:
            name = f"{self.random.getrandbits(128):032x}"
            record = {"type": role, "uuid": name, "parentUuid": self.last, "sessionId": self.session, "timestamp": at,
                      "message": {"role": role, "content": f"say {word}"}}  # fmt: skip
            self.last = name
        text = json.dumps(record)
        self.words[text] = word
        return text

    def edit(self) -> None:
        self.lines[self.random.randrange(1, len(self.lines))] = self.line()

    def space(self) -> None:
        place = self.random.randrange(1, len(self.lines))
        old = self.lines[place]
        self.lines[place] = old.replace('": ', '":  ', self.random.randint(1, 2))
        self.words[self.lines[place]] = self.words[old]

    def cut(self) -> None:
        if len(self.lines) > 4:
            del self.lines[-self.random.randint(1, 3) :]

    def grow(self) -> None:
        self.lines += [self.line() for _ in range(self.random.randint(1, 3))]

    def back(self) -> None:
        self.lines = self.random.choice(self.versions)[:]

    def repeat(self) -> None:
        self.lines.append(self.lines[self.random.randrange(1, len(self.lines))])

    def written(self) -> bytes:
        self.versions.append(self.lines[:])
        data = "".join(f"{line}\n" for line in self.lines).encode()
        self.path.write_bytes(data)
        return data

    # -- the store ----------------------------------------------------------------------------------------------------

    def sources(self) -> list[tuple[str, Source]]:
        def read(reader: Any) -> list[tuple[str, Source]]:
            sources = Sources(self.store.database, reader)
            return [(sources.name_of(each.conversation), each) for each in sources.all()]

        return self.store.database.recorder.query(read)

    def one(self) -> str:
        return self.random.choice(self.sources())[0]

    def use(self) -> None:
        self.store.version(self.one())

    def redact(self) -> None:
        name = self.one()
        begins = self.store.conversation(name).parent_version or 0
        says = [each for each in events_of(self.store, name)[begins:] if "say " in str(getattr(each, "content", ""))]
        if not says:
            return
        event = self.random.choice(says)
        word = str(event.content).split("say ")[1][:25]  # type: ignore[attr-defined]
        Histories(self.store)[name].redact([event.id], reason="asked for", by="me")
        (self.gone if word not in self.stored() else self.twice).add(word)  # the same in other bytes is another record

    def fork(self) -> None:
        name = self.one()
        version = self.store.version(name)
        if version:
            self.store.fork(name, self.random.randint(1, version), f"fork-{self.random.getrandbits(40)}")

    def erase(self) -> None:
        """Erase one that no other shares."""
        shared = {row.parent for row in self.store.conversations()}
        for name, source in self.sources():
            if name not in shared and source.parent is not None:
                words = {word for word in self.words.values() if word in self.stored()}
                erase(self.store, name, reason="asked for")
                self.erased = True
                left = self.stored()
                self.forgotten |= {word for word in words if word not in left}
                return

    def rekey(self) -> None:
        assert [each.problem for each in rekey(self.store, decrypt=self.random.random() < 0.5) if each.problem] == []

    def stored(self) -> str:
        """All that is stored of what the lines say, sealed or not."""
        found = list[str]()
        for name, source in self.sources():
            found += [b"".join(raw(self.store, name)).decode()]
            found += [each.decode("latin1") for each in (source.about, source.line, source.sums)]
        for row in self.store.conversations():
            if row.erased_at is None and not self.store.conversation(row.id, pending=True).pending:
                found += map(repr, self.store.events(row.id))
        return "\n".join(found)

    # -- a step -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        if not self.log:
            self.written()
            list(Import(self.store, [self.path], self.format))
        (name,) = self.random.choices([*self.STEPS], [*self.STEPS.values()])
        self.log.append(name)
        getattr(self, name)()
        data = self.written()
        (one,) = Import(self.store, [self.path], self.format)
        if isinstance(one, Failed):
            assert isinstance(one.error, SourceRefused), (self.log, one)
            assert self.gone or self.twice or self.erased, (self.log, one)
            self.log.append("refused")
        else:
            self.check_import(one.conversation, one.records, data)
        found = self.stored()
        assert [word for word in self.gone if word in found] == [], self.log
        assert [(each.conversation, found.problem) for each in verify(self.store) for found in each.findings] == [], (
            self.log
        )

    def check_import(self, conversation: str, records: int, data: bytes) -> None:
        lines = data.splitlines(keepends=True)
        now = b"".join(raw(self.store, conversation)).splitlines(keepends=True)[: len(lines)]
        differ = [line for line, there in zip(lines, now, strict=True) if line != there]
        words = {self.words.get(line.decode().rstrip("\n")) for line in differ}
        assert words <= self.gone | self.forgotten | self.twice, (self.log, differ)

    def check_events(self) -> None:
        """The events of the source are those of an import of its bytes at once."""
        for name, source in self.sources():
            if self.store.conversation(name, pending=True).redactions or source.redacted:
                continue
            other = self.path.with_suffix(".again.jsonl")
            other.write_bytes(b"".join(raw(self.store, name)))
            with in_memory() as store:
                (one,) = Import(store, [other], self.format)
                assert not isinstance(one, Failed)
                expected, ours = events_of(store, one.conversation), events_of(self.store, name)
            assert [plain(each) for each in ours] == [plain(each) for each in expected], (self.log, name)


def plain(event: Event) -> Event:
    return event


def run(folder: Path, seed: int) -> None:
    model = Model(folder, seed)
    with model.store:
        for _ in range(model.random.randint(6, 18)):
            model.step()
        model.check_events()


@pytest.mark.parametrize("seed", range(12))
def test_what_was_redacted_never_comes_back(seed: int, tmp_path: Path):
    run(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(20))
def test_it_never_comes_back_in_any_of_many_rounds(hundred: int, tmp_path: Path):
    for seed in range(100 * hundred, 100 * hundred + 100):
        run(tmp_path, seed)
