"""Lawful work of each kind raises no alarm, with and without the key of an encrypted conversation."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import foldlog
from foldlog._history.streamed_reply import StreamedReply
from foldlog._reports.search import index
from foldlog.eventstore import StoreRefused, open_store
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.log.streams import sweep_all
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.backup import back_up, restore, vacuum
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.projections import Views
from tests.attacks.arenas import Arena, Honest, SQLiteArena
from tests.attacks.made_store import KEYS, RECORDS, reply, user
from tests.how_many import some

Work = Callable[[foldlog.Histories, Arena], object]
WHY = {"reason": "asked", "by": "legal"}


def fork_of_fork(all_: foldlog.Histories, arena: Arena) -> None:
    all_["fork"].fork(at=5, id="deeper").append(user("deeper"))
    all_["chat"].fork(at=2, id="beside").fork(at=1, id="of a fork without events")


def begin_again(all_: foldlog.Histories, arena: Arena) -> None:
    all_.erase("once", reason="asked")
    all_.create("once", {"user": "new"}, replace_erased=True).append(user("new"))


def redact_and_check_between(all_: foldlog.Histories, arena: Arena) -> None:
    all_["paid"].redact(0, **WHY)
    make_checkpoint(all_.store)
    all_["paid"].redact(1, **WHY)
    make_checkpoint(all_.store)


def detach_a_redacted_past(all_: foldlog.Histories, arena: Arena) -> None:
    all_["chat"].redact(0, **WHY)
    all_.erase("chat", reason="asked", detach_forks=True)


def import_grown(all_: foldlog.Histories, arena: Arena) -> None:
    messages = [*RECORDS, user("opened"), user("later")]
    (arena.folder / "opened.json").write_text(json.dumps({"messages": messages}))
    all_.import_(arena.folder / "opened.json", conversation="opened")
    all_["opened"].view()


def import_again(all_: foldlog.Histories, arena: Arena) -> None:
    for name in ("opened", "unopened"):
        messages = [*RECORDS, user(name)]
        (arena.folder / f"{name}.json").write_text(json.dumps({"messages": messages}))
        all_.import_(arena.folder / f"{name}.json", conversation=name)


def append_records(all_: foldlog.Histories, arena: Arena) -> None:
    """Append records to conversations with and without a source, and to a fork of an import."""
    fork = all_["opened"].fork(at=2, id="fork of opened")
    for history in (all_["recorded"], all_["chat"], all_["opened"], all_["unopened"], fork):
        for number in range(3):
            history.append_records([user(f"record {number}")], format="openai-chat")
        history.append(user("no record"))
        history.append_records([user("record 3")], format="openai-chat", dedupe="origin")
    all_["recorded"].redact(1, **WHY)
    all_["recorded"].fork(at=2, id="fork of records").append_records(
        [user("own")], format="openai-chat"
    )


def detach_from_an_import(all_: foldlog.Histories, arena: Arena) -> None:
    fork = all_["opened"].fork(at=2, id="of import")
    fork.append_records([user("own")], format="openai-chat")
    all_["opened"].fork(at=3, id="also of import")
    all_.erase("opened", reason="asked", detach_forks=True)
    fork.append(user("later"))


def import_grown_after_an_append(all_: foldlog.Histories, arena: Arena) -> None:
    all_["opened"].append(user("mine"))
    import_grown(all_, arena)


def import_two_branches(all_: foldlog.Histories, arena: Arena) -> None:
    for end in ("one end", "another end"):
        messages = [*RECORDS, user(end)]
        (arena.folder / "opened.json").write_text(json.dumps({"messages": messages}))
        for history in all_.import_(arena.folder / "opened.json"):
            history.view()


def hand_over_an_import(all_: foldlog.Histories, arena: Arena) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CODEX_HOME", str(arena.folder / "codex of import"))
        made = all_["opened"].continue_in("codex", cwd=arena.folder)
        all_.import_(made.path)
        again = all_[made.session].continue_in("codex", cwd=arena.folder)
        all_.import_(again.path)
        all_[again.session].append(user("go on"))


def import_another(all_: foldlog.Histories, arena: Arena) -> None:
    (arena.folder / "another.json").write_text(json.dumps({"messages": RECORDS}))
    all_.import_(arena.folder / "another.json", conversation="another")


def run_a_tool(all_: foldlog.Histories, arena: Arena) -> None:
    history = all_["paid"]
    (call,) = history.append_reply(reply(None, ("k 2", "transfer")))
    history.ask_approval(call.event, to="carol")
    history.decide(call.event, True, by="carol")
    with history.lease():
        history.run(call.event, lambda to: f"paid {to}", needs_approval=True)


def begin_a_child(all_: foldlog.Histories, arena: Arena) -> None:
    (call,) = all_["boss"].append_reply(reply(None, ("s 2", "delegate")))
    all_["boss"].begin_child(call.event, "boss/second").append(user("look"))


def condense(all_: foldlog.Histories, arena: Arena) -> None:
    for number in range(6):
        all_["once"].append([user(f"more {number}"), {"role": "assistant", "content": "yes"}])
        all_["once"].step()


def archive_and_use(all_: foldlog.Histories, arena: Arena) -> None:
    archive(all_.store, "retracted", f"file://{arena.folder / 'objects'}")
    all_["archived"].view()


def copy_and_check(all_: foldlog.Histories, arena: Arena) -> None:
    path = arena.folder / "copy.db"
    path.unlink(missing_ok=True)
    with open_store(f"sqlite:///{path}", keys=KEYS) as copy:
        assert not any(moved.problem for moved in copy_store(all_.store, copy))
    copied = SQLiteArena(arena.note, arena.folder, f"sqlite:///{path}")
    [not_checked] = copied.judge(keys=KEYS)
    assert "its ledger was not compared: this is a copy" in not_checked


def back_up_and_restore(all_: foldlog.Histories, arena: Arena) -> None:
    backup = arena.folder / "backup.db"
    backup.unlink(missing_ok=True)
    back_up(all_.store, str(backup))
    copied = SQLiteArena(arena.note, arena.folder, f"sqlite:///{backup}")
    assert copied.judge(keys=KEYS) == []
    target = arena.folder / "restored.db"
    for left in arena.folder.glob("restored.db*"):
        left.unlink()
    restore(str(backup), str(target), WriteSettings(None, KEYS))
    copied = SQLiteArena(arena.note, arena.folder, f"sqlite:///{target}")
    assert copied.judge(keys=KEYS) == []


def forget_derived(all_: foldlog.Histories, arena: Arena) -> None:
    for name in ("chat", "documents"):
        Views(all_.store).rebuild(name)
    all_.list(age_max_s=0)


def repeat_with_key(all_: foldlog.Histories, arena: Arena) -> None:
    all_["once"].append(user("once"), idempotency_key="mail-1")
    all_["once"].append(user("twice"), idempotency_key="mail-2")


def leave_a_lease(all_: foldlog.Histories, arena: Arena) -> None:
    all_["chat"].lease(ttl_s=60).__enter__()


def leave_a_stream_open(all_: foldlog.Histories, arena: Arena) -> None:
    reply_ = all_["streamed"].stream_reply()
    reply_.begin()
    reply_.feed("half a ")


def cancel_and_drop_streams(all_: foldlog.Histories, arena: Arena) -> None:
    for end in (StreamedReply.cancel, StreamedReply.drop):
        reply_ = all_["streamed"].stream_reply()
        reply_.begin()
        reply_.feed("half a ")
        end(reply_)


def expire_streams(all_: foldlog.Histories, arena: Arena) -> None:
    leave_a_stream_open(all_, arena)
    month = timedelta(days=30)
    database = all_.store.database
    later = database.now() + month // timedelta(microseconds=1)
    with patch.object(database, "now", lambda: later):
        sweep_all(database)
    assert all_["streamed"].unfinished_reply() is None


def hand_over(all_: foldlog.Histories, arena: Arena) -> None:
    with pytest.MonkeyPatch.context() as environment:
        for program, folder in (("codex", "CODEX_HOME"), ("claude-code", "CLAUDE_CONFIG_DIR")):
            environment.setenv(folder, str(arena.folder / program))
            made = all_["chat"].continue_in(program, cwd=arena.folder)
            all_[made.session].append(user("go on"))
            all_.import_(made.path)


def drop_an_index(all_: foldlog.Histories, arena: Arena) -> None:
    index.make(all_.store)
    index.refresh(all_.store)
    index.drop(all_.store)


def redact_with_an_index(all_: foldlog.Histories, arena: Arena) -> None:
    index.make(all_.store, with_encrypted=True)
    index.refresh(all_.store)
    all_["chat"].redact(0, **WHY)
    all_.erase("once", reason="asked")
    index.refresh(all_.store)


def use_for_many_checkpoints(all_: foldlog.Histories, arena: Arena) -> None:
    """The checkpoint of the auditor is older than the checkpoints that follow."""
    for name in ("chat", "unopened", "archived", "sealed", "detached"):
        all_[name].append(user("more"))
        make_checkpoint(all_.store)
        all_[name].redact(0, **WHY)
        make_checkpoint(all_.store)


def settle(all_: foldlog.Histories, arena: Arena) -> None:
    all_["paid"].append_reply(reply(None, ("k 3", "transfer")))
    all_["paid"].close_open_calls("closed by ann")


WORK: dict[str, Work] = {
    "nothing": lambda all_, arena: None,
    "append": lambda all_, arena: all_["chat"].append(user("more")),
    "append to a fork": lambda all_, arena: all_["fork"].append(user("more")),
    "append to a fork without events": lambda all_, arena: all_["empty fork"].append(user("own")),
    "append to an import": lambda all_, arena: all_["opened"].append(user("more")),
    "append to an import without events": lambda all_, arena: all_["unopened"].append(user("x")),
    "append to an archived one": lambda all_, arena: all_["archived"].append(user("more")),
    "append to an encrypted one": lambda all_, arena: all_["sealed"].append(user("more")),
    "append documents": lambda all_, arena: all_["documents"].append((), documents={"plan": None}),
    "set attributes": lambda all_, arena: all_["documents"].set_attributes(user="bob"),
    "append a reply": lambda all_, arena: all_["chat"].append_reply(reply("done"), cost=1.5),
    "begin": lambda all_, arena: all_.create("new", {"user": "ann"}).append(user("new")),
    "begin a child": begin_a_child,
    "run a tool": run_a_tool,
    "close calls": settle,
    "repeat with a key": repeat_with_key,
    "leave a lease": leave_a_lease,
    "condense": condense,
    "retract": lambda all_, arena: all_["paid"].retract(3, reason="wrong"),
    "fork": lambda all_, arena: all_["paid"].fork(at=3, id="another").append(user("x")),
    "fork an import": lambda all_, arena: (
        all_["opened"].fork(at=2, id="of import").append(user("x"))
    ),
    "fork a fork": fork_of_fork,
    "fork an encrypted one": lambda all_, arena: (
        all_["sealed"].fork(at=2, id="s").append(user("x"))
    ),
    "erase": lambda all_, arena: all_.erase("once", reason="asked"),
    "erase an import": lambda all_, arena: all_.erase("unopened", reason="asked"),
    "erase an archived one": lambda all_, arena: all_.erase("archived", reason="asked"),
    "erase an encrypted one": lambda all_, arena: all_.erase("sealed", reason="asked"),
    "erase with forks": lambda all_, arena: all_.erase("chat", reason="asked", with_forks=True),
    "erase and detach": lambda all_, arena: all_.erase("chat", reason="asked", detach_forks=True),
    "erase and detach a redacted past": detach_a_redacted_past,
    "begin again": begin_again,
    "expire": lambda all_, arena: all_.maintenance.expire(timedelta(), detach_forks=True),
    "redact": lambda all_, arena: all_["paid"].redact([0, 1], **WHY),
    "redact a shared event": lambda all_, arena: all_["chat"].redact(1, **WHY),
    "redact what is redacted": lambda all_, arena: all_["redacted"].redact([0, 2], **WHY),
    "redact an import": lambda all_, arena: all_["opened"].redact(0, **WHY),
    "redact an encrypted one": lambda all_, arena: all_["sealed"].redact(0, **WHY),
    "redact in a detached fork": lambda all_, arena: all_["detached"].redact(2, **WHY),
    "redact between checkpoints": redact_and_check_between,
    "redact by text": lambda all_, arena: all_.maintenance.redact_matching("mill", **WHY),
    "redact records": lambda all_, arena: all_.maintenance.redact_matching("tons", **WHY),
    "import again": import_again,
    "import grown": import_grown,
    "import another": import_another,
    "append records": append_records,
    "detach from an import": detach_from_an_import,
    "import grown after an append": import_grown_after_an_append,
    "import two branches": import_two_branches,
    "hand over an import": hand_over_an_import,
    "use an import": lambda all_, arena: all_["unopened"].view(),
    "rekey all": lambda all_, arena: [*rekey(all_.store)],
    "rekey and check": lambda all_, arena: ([*rekey(all_.store)], make_checkpoint(all_.store)),
    "decrypt": lambda all_, arena: [*rekey(all_.store, "sealed", decrypt=True)],
    "archive": archive_and_use,
    "vacuum": lambda all_, arena: vacuum(all_.store),
    "copy": copy_and_check,
    "check again": lambda all_, arena: make_checkpoint(all_.store),
    "rebuild": forget_derived,
    "record a stream": lambda all_, arena: [*all_["streamed"].stream_reply(["it ", "rains"])],
    "leave a stream open": leave_a_stream_open,
    "cancel and drop streams": cancel_and_drop_streams,
    "expire streams": expire_streams,
    "hand over": hand_over,
    "make an index": lambda all_, arena: (index.make(all_.store), index.refresh(all_.store)),
    "drop an index": drop_an_index,
    "redact with an index": redact_with_an_index,
    "use for many checkpoints": use_for_many_checkpoints,
}
ON_SQLITE: dict[str, Work] = {"back up and restore": back_up_and_restore}


NAMED = {"append", "fork", "rekey all", "vacuum", "archive"}
"""The kinds of work that docs/PROOF.md names. It counts the others."""


def test_page_counts_the_other_kinds_of_work() -> None:
    page = (Path(__file__).parents[2] / "docs" / "PROOF.md").read_text()
    [count] = re.findall(r"and (\d+) other kinds of work", page)
    others = {*WORK, *ON_SQLITE} - NAMED - {"nothing"}
    assert len(others) >= int(count)


@pytest.mark.parametrize("part", range(6))
def test_lawful_work_raises_no_alarm(arena: Arena, honest: Honest, part: int) -> None:
    kinds = WORK | (ON_SQLITE if isinstance(arena, SQLiteArena) else {})
    alarms = {}
    for name in some([*kinds][part::6], 3):
        found = alarms_of(arena, kinds[name])
        if found:
            alarms[name] = found
    arena.restore()
    assert alarms == {}


def alarms_of(arena: Arena, work: Work) -> list[str]:
    arena.restore()
    objects = arena.folder / "objects"
    saved = arena.folder / "saved objects"
    shutil.copytree(objects, saved, dirs_exist_ok=True)
    condenser: Any = {"type": "digest", "max_size": 8, "keep_first": 1}
    try:
        with foldlog.open(arena.url, keys=KEYS, condenser=condenser) as all_:
            try:
                work(all_, arena)
            except StoreRefused as error:
                # In a copied file, an object stays that the other file may need.
                if error.kind != "archive":
                    raise
        found = arena.judge(keys=KEYS)
        # Without the key, what cannot be checked is no alarm.
        return found + arena.judge_without_key()
    finally:
        shutil.rmtree(objects)
        shutil.move(saved, objects)
