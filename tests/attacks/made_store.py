"""A store with conversations of every kind, and a signed checkpoint of it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import foldlog
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.view_tokens import ViewMeasuring
from foldlog._reports.search import index
from foldlog.eventstore import Annotation, KeyRing, open_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.signed_note import StoreCheckpoint, read_key, sign
from foldlog.projections import Views

KEYS = KeyRing(["55" * 32])
RECORDS = [
    {"role": "user", "content": "weigh the grain"},
    {"role": "assistant", "content": "it weighs 12 tons"},
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str | None, *calls: tuple[str, str]) -> dict[str, Any]:
    tool_calls = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": '{"to": "mill"}'}}
        for key, name in calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
    return {
        "id": f"r {text} {calls}",
        "model": "gpt-4o-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": message | ({"tool_calls": tool_calls} if calls else {}),
            }
        ],
        "usage": usage,
    }


def make(url: str, folder: Path, private_pem: bytes) -> StoreCheckpoint:
    """Fill an empty store. Return its checkpoint, signed with the key."""
    with foldlog.open(url, condenser={"type": "digest", "max_size": 8, "keep_first": 1}) as all_:
        _talk(all_)
        _import(all_, folder)
        _erase(all_)
    with open_store(url, keys=KEYS) as store:
        assert [outcome.conversation for outcome in rekey(store, "sealed")]
        note = make_checkpoint(store)
        index.make(store)
        index.refresh(store)
        FiguresOfStore(store).keep_up()
    verifier = read_key(private_pem.decode(), note.origin)
    return note._replace(signatures=(verifier.signature_line(sign(private_pem, note.text)),))


def _talk(all_: foldlog.Histories) -> None:
    for number in range(5):
        all_["chat"].append([user(f"question {number}"), *_message(f"answer {number}")])
        all_["chat"].step()
    all_["chat"].fork(at=4, id="fork").append(user("another way"))
    all_["chat"].fork(at=3, id="empty fork")
    for name, allowed in (("paid", True), ("refused", False)):
        history = all_[name]
        history.append(user("pay the mill"))
        (call,) = history.append_reply(reply(None, (f"k {name}", "transfer")))
        history.ask_approval(call.event, to="carol", shown={"amount": 100})
        history.decide(call.event, allowed, by="carol", reason="checked")
        if allowed:
            with history.lease():
                history.run(call.event, lambda to: f"paid {to}", needs_approval=True)
        else:
            history.append_tool_result(f"k {name}", "refused", is_error=True)
        history.append_reply(reply("done"), cost=0.25)
    all_["boss"].append(user("delegate"))
    (call,) = all_["boss"].append_reply(reply(None, ("s", "delegate")))
    all_["boss"].begin_child(call.event, "boss/child").append([user("look"), *_message("seen")])
    all_["boss"].append_tool_result("s", "seen")
    all_["documents"].set_attributes(user="ann", title="Grain")
    for step in range(3):
        all_["documents"].append(user(f"step {step}"), documents={"plan": {"step": step}})
    all_["bytes"].append([Annotation(name="own", data={"b": b"PNG" * 900}), *_message("see")])
    all_["retracted"].append([user("a"), user("b"), user("c")])
    all_["retracted"].retract(1, reason="wrong")
    all_["once"].append(user("once"), idempotency_key="mail-1")
    all_["streamed"].append(user("tell me"))
    for _ in all_["streamed"].stream_reply(["it is ", "wheat"]):
        pass
    all_["sealed"].append([user("the code is 7"), *_message("noted"), user("and 8")])
    _read_what_is_cached(all_)


def _read_what_is_cached(all_: foldlog.Histories) -> None:
    """Readers cache what they compute of these conversations."""
    assert [*all_.to_resume()] == []
    views = Views(all_.store)
    for name in ("chat", "fork", "paid", "retracted"):
        ViewMeasuring(all_.store, all_.store.conversation(name)).sizes(views)


def _message(text: str) -> list[Any]:
    return [{"role": "assistant", "content": text}]


def _import(all_: foldlog.Histories, folder: Path) -> None:
    for name in ("opened", "unopened"):
        (folder / f"{name}.json").write_text(json.dumps({"messages": [*RECORDS, user(name)]}))
        all_.import_(folder / f"{name}.json", conversation=name)
    all_["opened"].view()
    all_["archived"].append([user(f"old {number}") for number in range(4)])
    all_["archived"].set_attributes(keep="no")
    objects = f"file://{folder / 'objects'}"
    assert all_.maintenance.archive(timedelta(), objects, {"keep": "no"})


def _erase(all_: foldlog.Histories) -> None:
    history = all_["redacted"]
    history.append(user("secret"))
    history.append_reply(reply(None, ("d", "delete_database")))
    history.append_tool_result("d", "dropped", is_error=True)
    history.redact([0, 1], reason="asked", by="legal")
    all_["parent"].append([user("p"), *_message("q"), user("r")])
    all_["parent"].redact(0, reason="asked", by="legal")
    all_["parent"].fork(at=2, id="detached").append(user("own"))
    all_.erase("parent", reason="asked", detach_forks=True)
    for name in ("gone", "again"):
        all_[name].append([user("bye"), *_message("bye")])
        all_.erase(name, reason="asked")
    all_.create("again", {"user": "new"}, replace_erased=True).append(user("new"))
    all_.list(age_max_s=0)
