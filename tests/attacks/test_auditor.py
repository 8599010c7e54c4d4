"""An auditor has docs/PROOF.md, the command, the checkpoint and the public key, and asks: was it
changed, was it redacted and by whom, was it approved and by which token, is it complete?
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

import foldlog
from foldlog.eventstore import Annotation, KeyRing
from tests.attacks.made_store import reply, user
from tests.commands import run_foldlog

KEY = "66" * 32
UNCHANGED = "no changes found."


class Audit(NamedTuple):
    """The exit status of a command, and its output."""

    status: int
    printed: str

    @property
    def words(self) -> str:
        return " ".join(self.printed.split())


class Auditor:
    def __init__(self, folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._keys = keys
        self._capsys = capsys

    @property
    def path(self) -> Path:
        return self._folder / "store.db"

    def take_checkpoint(self) -> None:
        made = self.run("store checkpoint", "--key", str(self._keys / "key.pem"))
        assert made.status == 0
        (self._folder / "checkpoint.txt").write_text(made.printed)

    def verify(self) -> Audit:
        return self.run(
            "store verify",
            *("--against", str(self._folder / "checkpoint.txt")),
            *("--key", str(self._keys / "public.pem")),
        )

    def run(self, command: str, *words: str) -> Audit:
        self._capsys.readouterr()
        status = run_foldlog(*command.split(), *words, "--db", str(self.path))
        said = self._capsys.readouterr()
        return Audit(status, said.out + said.err)

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            assert connection.execute(statement).rowcount
            connection.commit()


@pytest.fixture
def auditor(tmp_path: Path, keys_of_the_owner: Path, capsys: pytest.CaptureFixture[str]) -> Auditor:
    return Auditor(tmp_path, keys_of_the_owner, capsys)


def work(auditor: Auditor, **options: object) -> None:
    with foldlog.open(f"sqlite:///{auditor.path}", **options) as all_:  # type: ignore[arg-type]
        history = all_["pay"]
        history.append(user("pay the mill"))
        (call,) = history.append_reply(reply(None, ("k", "transfer")))
        history.ask_approval(call.event, to="carol", shown={"amount": 100})
        decision = {"approved": True, "by": "carol", "reason": "checked", "token": "desk-7"}
        history.append(Annotation(name="foldlog.approval", data=decision, cause=call.event.id))
        all_["secret"].append([user("my number is 7"), {"role": "assistant", "content": "noted"}])


def redact(auditor: Auditor, **options: object) -> None:
    with foldlog.open(f"sqlite:///{auditor.path}", **options) as all_:  # type: ignore[arg-type]
        all_["secret"].redact(0, reason="asked to", by="Legal")


def test_plain_store_answers_all_questions(auditor: Auditor) -> None:
    work(auditor)
    auditor.take_checkpoint()
    untouched = auditor.verify()
    assert (untouched.status, UNCHANGED in untouched.words) == (0, True)
    assert "2 conversations with 6 events checked" in untouched.words
    assert "After the checkpoint came 0 events" in untouched.words
    assert "figures and attributes in lists, were not compared" in untouched.words
    redact(auditor)
    redacted = auditor.verify()
    assert redacted.status == 0
    assert (
        "secret: event 0 redacted since the checkpoint by Legal (asked to); event 2 is the receipt"
        in redacted.words
    )
    assert "After the checkpoint came 1 event" in redacted.words
    approved = auditor.run("log", "pay", "--all", "--full")
    assert '"by": "carol"' in approved.words
    assert '"token": "desk-7"' in approved.words
    auditor.change("UPDATE events SET body = replace(body, 'desk-7', 'desk-8') WHERE id = 3")
    changed = auditor.verify()
    assert (changed.status, "conversation 'pay': event 3" in changed.words) == (1, True)


def test_complete_store_is_told_from_one_that_lost_its_end(auditor: Auditor) -> None:
    work(auditor)
    auditor.take_checkpoint()
    auditor.change("DELETE FROM events WHERE id = 3")
    cut = auditor.verify()
    assert cut.status == 1
    assert "its end is cut off: it had 4 events at the checkpoint, and has 3" in cut.words


def test_encrypted_store_without_its_key_says_what_only_the_key_shows(auditor: Auditor) -> None:
    keys = KeyRing([KEY])
    work(auditor, keys=keys)
    auditor.take_checkpoint()
    untouched = auditor.verify()
    assert untouched.status == 3
    assert "no changes found in what could be checked." in untouched.words
    assert "2 not checked because a key is missing" in untouched.words
    assert "the number, order, kinds and times of its events were compared" in untouched.words
    redact(auditor, keys=keys)
    redacted = auditor.verify()
    assert redacted.status == 3
    assert (
        "secret: event 0 redacted since the checkpoint; receipts since then: event 2; only the key"
        " shows by whom" in redacted.words
    )
    auditor.change("DELETE FROM events WHERE kind = 'redaction'")
    without_receipt = auditor.verify()
    assert without_receipt.status == 1
    assert "event 0: its content was erased since the checkpoint" in without_receipt.words


def test_encrypted_store_without_its_key_shows_a_change(auditor: Auditor) -> None:
    work(auditor, keys=KeyRing([KEY]))
    auditor.take_checkpoint()
    auditor.change("DELETE FROM events WHERE id = 3")
    cut = auditor.verify()
    assert cut.status == 1
    assert "were not encrypted at the checkpoint" not in cut.words
    assert "its end is cut off: it had 4 events at the checkpoint, and has 3" in cut.words


def test_import_that_nobody_opened_answers(auditor: Auditor, tmp_path: Path) -> None:
    messages = [user("weigh the grain"), {"role": "assistant", "content": "12 tons"}]
    (tmp_path / "grain.json").write_text(json.dumps({"messages": messages}))
    imported = auditor.run("import", str(tmp_path / "grain.json"), "--conversation", "grain")
    assert imported.status == 0
    auditor.take_checkpoint()
    untouched = auditor.verify()
    assert (untouched.status, UNCHANGED in untouched.words) == (0, True)
    assert "1 conversation with 0 events and 2 records without events checked" in untouched.words
    redacted = auditor.run(
        "store redact", "grain", "0", "--reason", "asked to", "--by", "Legal", "--yes"
    )
    assert redacted.status == 0
    with_receipt = auditor.verify()
    assert with_receipt.status == 0
    assert "grain: event 0 redacted since the checkpoint by Legal (asked to)" in with_receipt.words
    auditor.change("UPDATE sources SET records = 1, made = 1")
    assert auditor.verify().status == 1
