"""An operator changes a store in hundreds of ways, after a checkpoint that only an auditor has.

Each change that a reader could see is found by ``foldlog store verify --against CHECKPOINT --views``,
or is one that docs/PROOF.md lists under "What is not proven". A proof of a changed event is refused
by ``foldlog store checkpoint --prove``, or by the verifier for Node.
"""

from __future__ import annotations

import atexit
import json
import re
import sqlite3
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import psycopg
import pytest

from foldlog.errors import EventStoreError
from foldlog.eventstore import open_store
from foldlog.eventstore.proof.proofs import prove_event
from tests.attacks.arenas import Arena, Honest
from tests.attacks.attacks import Attack, attacks
from tests.attacks.made_store import KEYS
from tests.attacks.shown import differences
from tests.how_many import some

ROOT = Path(__file__).parents[2]
PARTS = 16

NO_EFFECT = "Stored values that change nothing that foldlog shows"


class Limit(NamedTuple):
    """Changes that nobody finds: what docs/PROOF.md says of them, and which pages may show them."""

    words: str
    pages: frozenset[str] = frozenset()
    on_any_page: bool = False


IN_ORDER = Limit(
    "The position of an event among the events of other conversations",
    frozenset({"order", "/v1/follow"}),
)
OF_CONVERSATIONS = {
    r"positions of \w+ 0 and once 0|conversations\.(first_position|published) of detached": IN_ORDER,
    r"conversations\.redactions of (fork|empty fork|detached|archived)": Limit(
        "the number of redactions that a list shows of a fork or of an archived conversation",
        frozenset({"conversations", "/api/history", "/api/report", "/api/task"}),
    ),
    # Opening an import also makes events of them.
    r"\w+: another (title|where|usage|unread) beside its records": Limit(
        "the title, folder, parent, usage and unread lines that are kept beside the records",
        on_any_page=True,
    ),
}
LIMITS = OF_CONVERSATIONS | {
    r"archived: ": Limit(
        "those of archived conversations",
        frozenset(
            {"list", "/v1/conversations", "/api/conversations", "/api/fleet", "/api/overview"}
            | {"/api/models", "/api/report", "/api/task", "stats", "stats --by model"}
            | {"list --all --long --limit 99"}
        ),
    ),
    r"\w+: a text before the first records": Limit(
        "what comes before the first and after the last record",
        frozenset({"export as None", "export {}"}),
    ),
    r"publications|events\.position": IN_ORDER,
    r"idempotency_keys": Limit("idempotency keys"),
    r"places|sources\.fingerprint|refused": Limit(
        "which files an import has read, and which it refuses"
    ),
    r"unfinished|tracking|epoch": Limit("work that is not finished"),
    r"stream": Limit("streams", frozenset({"/v1/stream"})),
    r"search": Limit("the search index", frozenset({"/api/search", "/v1/search", "search grain"})),
}
"""Maps attacks, by the beginning of their name, to their limits. An attack on anything else that
nobody finds must change nothing that a reader sees.
"""


FORMER_HOLES = [
    "conversations.pending of archived plus one",
    "opened: its document lacks a record",
    "opened: its document exchanges a record",
    "unopened: a text between the records of its document, 1",
    "unopened: secret beside its records is 'no number'",
    "paid: a conversation that is still being imported has the same figures",
    "bytes 0: its row does not say that it has bytes beside its body",
    "documents: a record of other attributes",
    "unopened: a record of other attributes",
    "unopened: lists have a later time for it",
    "fork: an event that only followers read",
    "archived: an event that only followers read",
    "chat: an event in its ledger",
    "chat: an entry erased among its events",
]
"""Attacks that nobody found once."""


def not_proven() -> str:
    page = (ROOT / "docs" / "PROOF.md").read_text()
    return " ".join(page.partition("## What is not proven")[2].split())


def test_honest_store_has_no_findings(arena: Arena, honest: Honest) -> None:
    assert honest.found == []
    assert [page for page, text in honest.seen.items() if text.startswith("refused")] == []
    assert honest.without_key != []
    assert all(text.startswith("sealed: ") for text in honest.without_key)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_a_reader_could_see_is_found(
    arena: Arena, honest: Honest, keys_of_the_owner: Path, part: int
) -> None:
    arena.restore()
    operator = arena.operator()
    all_attacks = attacks(operator)
    operator.close()
    assert len(all_attacks) > 900
    wrong = []
    for attack in some(all_attacks[part::PARTS], 3):
        if made(arena, attack):
            wrong += complaints(arena, honest, keys_of_the_owner, attack)
    arena.restore()
    assert wrong == []


@pytest.mark.parametrize("limit", OF_CONVERSATIONS)
def test_exemption_is_needed(arena: Arena, honest: Honest, limit: str) -> None:
    """A reader sees what one of these attacks changes, and nothing finds it."""
    arena.restore()
    operator = arena.operator()
    exempt = [attack for attack in attacks(operator) if re.match(limit, attack.name)]
    operator.close()
    assert any(
        made(arena, attack)
        and not arena.judge(keys=KEYS)
        and differences(honest.seen, arena.shown())
        for attack in exempt
    )
    arena.restore()


@pytest.mark.parametrize("name", FORMER_HOLES)
def test_former_hole_is_closed(arena: Arena, name: str) -> None:
    arena.restore()
    operator = arena.operator()
    [attack] = [attack for attack in attacks(operator) if attack.name == name]
    operator.close()
    assert made(arena, attack)
    assert arena.judge(keys=KEYS) != []
    arena.restore()


def made(arena: Arena, attack: Attack) -> bool:
    arena.restore()
    operator = arena.operator()
    try:
        attack.change(operator)
    except (sqlite3.IntegrityError, psycopg.errors.IntegrityError):
        return False  # two rows with one key, or a null
    finally:
        operator.close()
    return True


def complaints(arena: Arena, honest: Honest, keys: Path, attack: Attack) -> list[str]:
    found = arena.judge(keys=KEYS)
    wrong = []
    if attack.event is not None:
        wrong += forged_proofs(arena, honest, keys, attack.event)
    if attack.name.startswith("sealed") and set(arena.judge()) <= set(honest.without_key):
        wrong.append(f"{attack.name}: not found without the key")
    if not found:
        limits = [limit for what, limit in LIMITS.items() if re.match(what, attack.name)]
        allowed = frozenset[str]().union(*(limit.pages for limit in limits))
        seen = {*differences(honest.seen, arena.shown())} - allowed
        if seen and not any(limit.on_any_page for limit in limits):
            wrong.append(f"{attack.name}: silent, and {', '.join(sorted(seen))} show it")
        elif not all(limit.words in not_proven() for limit in limits or [Limit(NO_EFFECT)]):
            wrong.append(f"{attack.name}: docs/PROOF.md does not say that nobody finds it")
    return wrong


def forged_proofs(arena: Arena, honest: Honest, keys: Path, event: tuple[str, int]) -> list[str]:
    """Return what a forged proof of an event says, if the verifier for Node believes it. Of a
    redacted event, the verifier says that only its place is proved.
    """
    name, event_id = event
    try:
        with open_store(arena.url, keys=KEYS) as store:
            proof = msgspec.json.encode(prove_event(store, arena.note, name, event_id))
    except (EventStoreError, IndexError, ValueError):
        return []
    said, status = verified(arena, keys, proof)
    body = json.loads(proof)["body"]
    if status or body in honest.bodies or "is proved, not its content" in said:
        return []
    return [f"{name} {event_id}: the verifier believes {said!r}"]


def verified(arena: Arena, keys: Path, proof: bytes) -> tuple[str, int]:
    """Return what the verifier for Node prints about a proof, and its exit status."""
    (arena.folder / "proof.json").write_bytes(proof)
    (arena.folder / "note.txt").write_text(str(arena.note))
    files = arena.folder / "proof.json", keys / "public.pem", arena.folder / "note.txt"
    node = running_node()
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(json.dumps([*map(str, files)]) + "\n")
    node.stdin.flush()
    said, status = json.loads(node.stdout.readline())
    return said, status


@cache
def running_node() -> subprocess.Popen[str]:
    """Begin a process for all proofs, because Node takes 0.2 s to begin."""
    node = subprocess.Popen(
        ["node", ROOT / "tests" / "attacks" / "verify_all.mjs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(node.communicate)  # the end of its input ends the process
    return node


@pytest.mark.parametrize(
    "event", [("chat", 1), ("opened", 1), ("redacted", 0), ("detached", 0), ("sealed", 2)]
)
def test_verifier_for_node_proves_events_of_each_kind(
    arena: Arena, honest: Honest, keys_of_the_owner: Path, event: tuple[str, int]
) -> None:
    arena.restore()
    with open_store(arena.url, keys=KEYS) as store:
        proof = prove_event(store, arena.note, *event)
    said, status = verified(arena, keys_of_the_owner, msgspec.json.encode(proof))
    assert (status, proof.conversation) == (0, event[0])
    if event[0] in ("redacted", "detached"):
        assert "is proved, not its content: the owner says that it was redacted" in said
    else:
        assert f"is proved:\n{proof.body}" in said
    forged = msgspec.structs.replace(proof, event=event[1] + 1)
    assert verified(arena, keys_of_the_owner, msgspec.json.encode(forged))[1] == 1
