"""The attacks change every column of every table, and every field of events. The operator makes
everything anew that follows from a change and needs no key of the auditor.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from foldlog._reports.figures.checking import forget_figures
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog.eventstore import Event, open_store
from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import Detached, Erased, Redacted, RedactionCopied
from foldlog.eventstore.log.redacted import without_content
from foldlog.eventstore.log.row import (
    checksum_seed,
    commitment_of,
    from_microseconds,
    present,
    stored_event_of,
    with_checksums,
)
from foldlog.eventstore.log.seal import WITH_BYTES
from foldlog.eventstore.recorders.types import Row, row_of
from foldlog.eventstore.sources.blocks import GENESIS, chain_head
from tests.attacks.made_store import KEYS
from tests.attacks.operators import Operator, Stored
from tests.stored_rows import meta_field, with_fields

HOUR = 3_600_000_000
"""In microseconds, as the store has times."""
ONE_OF_EACH_KIND = frozenset(
    {"chat", "fork", "empty fork", "detached", "gone", "again", "sealed", "unopened", "archived"}
)


class Attack(NamedTuple):
    """A change of a store. ``target`` is what is changed: a table and column, or a field of events.
    ``event`` is the event that is changed, if it is one.
    """

    name: str
    target: str
    change: Callable[[Operator], object]
    event: tuple[str, int] | None = None


def attacks(op: Operator) -> list[Attack]:
    kinds = (
        of_columns,
        of_rows,
        of_events,
        of_bytes_beside,
        of_redactions,
        of_order,
        of_followers,
        of_sources,
        of_documents,
        of_lists,
        of_two_places,
    )
    return [attack for kind in kinds for attack in kind(op)]


# -- each column of each table


def of_columns(op: Operator) -> Iterator[Attack]:
    for table in op.tables():
        rows = op.rows(table)
        for row in _chosen(op, table, rows):
            for column, value in row.items():
                for change, new in _others(value, [other[column] for other in rows]):
                    yield Attack(
                        f"{table}.{column} of {_where(op, table, row)} {change}",
                        f"{table}.{column}",
                        partial(_change_column, table=table, row=row, column=column, new=new),
                    )


def _change_column(op: Operator, table: str, row: Stored, column: str, new: object) -> None:
    changed = {**row, column: new}
    if table == "records" and column != "checksum":
        changed = op.with_right_checksum(changed)
    op.update(table, row, **{name: value for name, value in changed.items() if value != row[name]})


def _chosen(op: Operator, table: str, rows: list[Stored]) -> list[Stored]:
    """Return rows of a table that stand for the others: each attack costs a verification of the
    whole store.
    """
    if table == "conversations":  # one of each kind
        return [row for row in rows if op.text(row["id"]) in ONE_OF_EACH_KIND]
    if table == "events":  # an event of every third conversation
        of_conversations = {
            row["conversation"]: row for row in rows if row["id"] == 1 or row["conversation"] < 0
        }
        return [*of_conversations.values()][::3]
    if table == "store":
        return rows
    if table == "records":  # a newest record of each projection
        newest = {(row["conversation"], row["projection"]): row for row in rows}
        of_kinds = {row["projection"]: row for row in newest.values()}
        return [*of_kinds.values()]
    # The first row and one from the middle: if a check looked at the first row only, the second
    # one would show it.
    return rows[:: max(1, len(rows) // 2)][:2]


def _where(op: Operator, table: str, row: Stored) -> str:
    key = row.get("key") if table == "conversations" else row.get("conversation")
    name = "" if key is None else op.name_of(key)
    ids = [
        str(row[column]) for column in ("id", "version", "name") if isinstance(row.get(column), int)
    ]
    return " ".join([name or "the store", *ids])


def _others(value: Any, column: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield other values of the same type."""
    match value:
        case bool():
            yield "negated", not value
        case int() if value > 10**14:  # a time; no other number of the store is as large
            yield "an hour earlier", value - HOUR
        case int():
            yield "plus one", value + 1
            if value:
                yield "zero", 0
        case float():
            yield "doubled", value * 2 + 1
        case str():
            yield "longer", value + "x"
        case bytes() | memoryview() if len(value):
            raw = bytes(value)
            yield "with another last byte", raw[:-1] + bytes([raw[-1] ^ 1])
            if len(raw) > 16:
                yield "with another byte in the middle", raw[:9] + bytes([raw[9] ^ 1]) + raw[10:]
        case bytes() | memoryview():
            yield "not empty", b"x"
        case None:
            for other in column:
                if other is not None:
                    yield "not null", other
                    break
    if value is not None and None in column:
        yield "null", None


# -- whole rows


def of_rows(op: Operator) -> Iterator[Attack]:
    for table in op.tables():
        for row in op.rows(table)[:4]:
            where = _where(op, table, row)
            yield Attack(
                f"{table}: row of {where} deleted",
                f"{table}",
                partial(Operator.delete, table=table, row=row),
            )
        yield Attack(f"{table}: all rows deleted", table, partial(_clear, table=table))
    for table in ("refused", "idempotency_keys", "tracking", "unfinished"):
        row = _made_up(op, table)
        if row:
            yield Attack(
                f"{table}: a row made up", table, partial(Operator.insert, table=table, row=row)
            )


def _clear(op: Operator, table: str) -> None:
    op.execute(f"DELETE FROM {table}")


def _made_up(op: Operator, table: str) -> Stored:
    for row in op.rows(table):
        column = {"refused": "fingerprint", "idempotency_keys": "key", "tracking": "application"}
        name = column.get(table, "conversation")
        value = row[name]
        return {**row, name: next(new for _, new in _others(value, []))}
    return {}


# -- events, with right heads


def of_events(op: Operator) -> Iterator[Attack]:
    for name in ("chat", "paid", "refused", "boss", "documents", "opened", "retracted", "bytes"):
        key = op.conversation(name)["key"]
        for row in op.events(key):
            if row.encoding:
                continue
            body = json.loads(row.body)
            for number, (path, value) in enumerate(_leaves(body)):
                if path[0] in ("kind", "$bytes"):
                    continue
                new = _other_json(value)
                changed = json.dumps(_with(body, path, new), separators=(",", ":")).encode()
                field = ".".join(map(str, path))
                heads = "old" if number % 3 == 2 else "right"
                yield Attack(
                    f"{name} {row.id}: {field} is {new!r}, heads {heads}",
                    f"event.{path[0]}",
                    partial(_rewrite, key=key, event_id=row.id, heads=heads, body=changed),
                    (name, row.id),
                )
            if row.id > 3:
                continue
            for field, value in (
                ("recorded_at", meta_field(row.meta, "recorded_at") - HOUR),
                ("recorded_at", meta_field(row.meta, "recorded_at") + HOUR),
                ("kind", "annotation"),
                ("schema", row.schema + 1),
                ("shown", not row.shown),
                ("structural", not row.structural),
                ("shown_before", row.shown_before + 1),
            ):
                yield Attack(
                    f"{name} {row.id}: {field} is {value}",
                    f"meta.{field}",
                    partial(_rewrite, key=key, event_id=row.id, heads="right", **{field: value}),
                    (name, row.id),
                )


def _rewrite(op: Operator, key: int, event_id: int, heads: str, **fields: Any) -> None:
    [row] = [event for event in op.events(key) if event.id == event_id]
    changed = with_fields(row, **fields)
    if heads == "right":
        op.rewrite(key, changed)
    else:
        op.put(key, [changed])


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def _other_json(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return "forged"
        case "user":
            return "agent"
        case "agent" | "environment":
            return "user"
    return f"{value} forged"


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    first, *rest = path
    if isinstance(value, dict):
        return {**value, first: _with(value.get(first), tuple(rest), new)}
    return [_with(item, tuple(rest), new) if at == first else item for at, item in enumerate(value)]


def of_bytes_beside(op: Operator) -> Iterator[Attack]:
    """No head covers the flag in ``meta`` that makes a reader look for bytes beside a body."""
    for name in ("bytes", "chat"):
        key = op.conversation(name)["key"]
        for row in op.events(key)[:2]:
            says = "does not say" if row.encoding & WITH_BYTES else "says"
            yield Attack(
                f"{name} {row.id}: its row {says} that it has bytes beside its body",
                "meta.encoding",
                partial(
                    _rewrite,
                    key=key,
                    event_id=row.id,
                    heads="old",
                    encoding=row.encoding ^ WITH_BYTES,
                ),
                (name, row.id),
            )


# -- redactions


def of_redactions(op: Operator) -> Iterator[Attack]:
    for name in ("redacted", "detached"):
        key = op.conversation(name)["key"]
        for row in op.events(key):
            body = json.loads(row.body)
            if "redacted" not in body:
                continue
            for path, value in _leaves(body):
                if path[0] == "kind":
                    continue
                changed = json.dumps(_with(body, path, _other_json(value)), separators=(",", ":"))
                yield Attack(
                    f"{name} {row.id}: {'.'.join(map(str, path))} of what is left",
                    "redacted event",
                    partial(_rewrite, key=key, event_id=row.id, heads="old", body=changed.encode()),
                    (name, row.id),
                )
    for name in ("chat", "refused", "documents", "opened", "fork"):
        key = op.conversation(name)["key"]
        for row in op.events(key)[:4]:
            for way in ("silently", "as the past of a detached fork", "by an entry of the ledger"):
                yield Attack(
                    f"{name} {row.id}: content erased {way}",
                    "content erased",
                    partial(_erase_content, key=key, event_id=row.id, way=way),
                    (name, row.id),
                )


def _erase_content(op: Operator, key: int, event_id: int, way: str) -> None:
    [row] = [event for event in op.events(key) if event.id == event_id]
    commitment = commitment_of(row.proof, row.body)
    at = from_microseconds(row.recorded_at)
    mark = Redacted(at=at, by="me", reason="mine", hash=commitment.hex(), bytes=len(row.body))
    event = stored_event_of(op.name_of(key), row)
    try:
        form = without_content(event, mark)
    except TypeError:  # a receipt cannot be redacted, so its body is emptied
        form = event
    body = encode(form, ours=True).body
    op.put(key, [with_fields(row, body=body, proof=row.head + commitment)])
    op.count_redaction(key)
    if way == "as the past of a detached fork":
        op.execute("UPDATE conversations SET parent_version = 9 WHERE key = ?", key)
    elif way == "by an entry of the ledger":
        entries = op.events(-key)
        entry = encode(RedactionCopied(event_ids=(event_id,)), ours=True)
        new = row_of(len(entries), entry.kind, 1, False, False, present(), 0, entry.body, b"")
        _insert_event(op, -key, new)


# -- order, ends and places


def of_order(op: Operator) -> Iterator[Attack]:
    for name in ("chat", "paid", "documents", "sealed", "opened"):
        key = op.conversation(name)["key"]
        count = len(op.events(key))
        for first in range(min(count - 1, 3)):
            yield Attack(
                f"{name}: events {first} and {first + 1} exchanged",
                "order",
                partial(_exchange, key=key, first=first),
                (name, first),
            )
            yield Attack(
                f"{name}: positions of events {first} and {first + 1} exchanged",
                "positions",
                partial(_exchange_positions, one=(key, first), other=(key, first + 1)),
            )
        yield Attack(f"{name}: its end is cut", "end", partial(_cut, key=key, last=count - 1))
        yield Attack(f"{name}: all but the first", "end", partial(_cut, key=key, last=1))
        yield Attack(f"{name}: removed", "conversation", partial(_remove, key=key))
        other = op.conversation("once")["key"]
        yield Attack(
            f"positions of {name} 0 and once 0 exchanged",
            "positions of two conversations",
            partial(_exchange_positions, one=(key, 0), other=(other, 0)),
        )

    yield Attack(
        "paid: its events have two positions", "positions", partial(_publish_again, name="paid")
    )


def _publish_again(op: Operator, name: str) -> None:
    key = op.conversation(name)["key"]
    [(last,)] = op.execute("SELECT max(position) FROM events")
    size = len(op.events(key))
    if "publications" in op.tables():  # on a server
        row = {"first_position": last + 1, "conversation": key, "first_id": 0, "size": size}
        op.insert("publications", row)
    else:
        update = "UPDATE conversations SET first_position = ?, published = ? WHERE key = ?"
        op.execute(update, last + 1, size, key)


def _exchange(op: Operator, key: int, first: int) -> None:
    one, other = op.events(key, first)[:2]
    for row, place in ((one, other), (other, one)):
        moved = with_fields(
            row,
            event_id=place.id,
            recorded_at=place.recorded_at,
            shown_before=place.shown_before,
            structural_before=place.structural_before,
        )
        op.put(key, [moved])
    [state] = [stored for stored in op.rows("conversations") if stored["key"] == key]
    if state["key_id"] is None:
        op.relink(state, op.events(key), first)


def _exchange_positions(op: Operator, one: tuple[int, int], other: tuple[int, int]) -> None:
    places = [
        op.execute("SELECT position FROM events WHERE conversation = ? AND id = ?", *each)[0][0]
        for each in (one, other)
    ]
    free = 2**62
    for (key, event_id), place in ((one, free), (other, places[0]), (one, places[1])):
        op.execute(
            "UPDATE events SET position = ? WHERE conversation = ? AND id = ?", place, key, event_id
        )


def _cut(op: Operator, key: int, last: int) -> None:
    op.execute("DELETE FROM events WHERE conversation = ? AND id >= ?", key, last)


def _remove(op: Operator, key: int) -> None:
    op.execute("DELETE FROM events WHERE conversation = ?", key)
    op.execute("DELETE FROM conversations WHERE key = ?", key)


# -- rows that only followers read


def of_followers(op: Operator) -> Iterator[Attack]:
    """Put an event where no reader of its conversation looks, but followers read it."""
    for name, event_id in (("fork", 1), ("empty fork", 0), ("archived", 1)):
        yield Attack(
            f"{name}: an event that only followers read",
            "followers",
            partial(_insert_for_followers, name=name, event_id=event_id),
        )
    yield Attack(
        "chat: an event in its ledger",
        "followers",
        partial(_insert_for_followers, name="chat", event_id=0, in_ledger=True),
    )
    for entry in (Erased(reason="asked"), Detached(parent="boss", version=1)):
        yield Attack(
            f"chat: an entry {encode(entry, ours=True).kind} among its events",
            "followers",
            partial(_append_entry, name="chat", entry=entry),
        )


def _insert_for_followers(
    op: Operator, name: str, event_id: int, *, in_ledger: bool = False
) -> None:
    key = op.conversation(name)["key"]
    [row] = op.events(op.conversation("once")["key"])
    _insert_event(op, -key if in_ledger else key, with_fields(row, event_id=event_id))


def _append_entry(op: Operator, name: str, entry: Event) -> None:
    state = op.conversation(name)
    *_, last = op.events(state["key"])
    encoded = encode(entry, ours=True)
    row = with_fields(
        last,
        event_id=last.id + 1,
        kind=encoded.kind,
        shown=False,
        structural=False,
        shown_before=last.shown_before + last.shown,
        structural_before=last.structural_before + last.structural,
        body=encoded.body,
    )
    _insert_event(op, state["key"], row)
    op.relink(state, op.events(state["key"]), row.id)


def _insert_event(op: Operator, key: int, row: Row) -> None:
    [(last,)] = op.execute("SELECT max(position) FROM events")
    [row] = with_checksums(checksum_seed(op.name_of(key)), [row])
    op.execute(
        "INSERT INTO events (position, conversation, id, kind, shown, structural, meta, body)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, {op.as_body(row)})",
        *(last + 1, key, row.id, op.kind(row), op.flag(row.shown), op.flag(row.structural)),
        *(row.meta, row.body),
    )


# -- sources of imports


def of_sources(op: Operator) -> Iterator[Attack]:
    for name in ("opened", "unopened"):
        key = op.conversation(name)["key"]
        for old, new in ((b"12 tons", b"99 tons"), (b'"user"', b'"USER"'), (b"weigh", b"steal")):
            yield Attack(
                f"{name}: {old!r} in its source is {new!r}",
                "source",
                partial(_forge_source, key=key, old=old, new=new),
            )
        for text in (b',{"role": "user", "content": "burn it"}', b"{damaged"):
            yield Attack(
                f"{name}: {text!r} between its records",
                "between records",
                partial(_put_between, key=key, text=text),
            )
        for record in range(3):
            yield Attack(
                f"{name}: record {record} of its source is erased",
                "record erased",
                partial(_erase_record, key=key, record=record),
            )
    key = op.conversation("opened")["key"]
    for number, what in enumerate(("record", "event", "number of events")):
        yield Attack(
            f"made: the {what} of the last entry plus one",
            "made",
            partial(_change_made, key=key, number=number),
        )
    for entry in range(3):
        yield Attack(
            f"made: entry {entry} of opened removed",
            "made",
            partial(_remove_made, key=key, entry=entry),
        )


def _put_between(op: Operator, key: int, text: bytes) -> None:
    """Put a text before the second record of a source, which no hash of a record covers."""
    for block in op.rows("blocks"):
        if block["conversation"] == key and block["records"] > 1:
            index = zlib.decompressobj()
            numbers = array("I", index.decompress(bytes(block["places"])))
            start = numbers[0] + numbers[1]
            raw = zlib.decompress(bytes(block["body"]))
            numbers[2] += len(text)
            places = zlib.compress(numbers.tobytes()) + index.unused_data
            body = zlib.compress(raw[:start] + text + raw[start:])
            op.update("blocks", block, places=places, body=body)


def _erase_record(op: Operator, key: int, record: int) -> None:
    """Blank the first text of a record, and mark the record as redacted."""
    for block in op.rows("blocks"):
        if block["conversation"] == key:
            index = zlib.decompressobj()
            numbers = array("I", index.decompress(bytes(block["places"])))
            raw = zlib.decompress(bytes(block["body"]))
            start = sum(numbers[: 2 * record + 1])
            blank = b"{}".ljust(numbers[2 * record + 1])
            op.update(
                "blocks",
                block,
                body=zlib.compress(raw[:start] + blank + raw[start + len(blank) :]),
            )
    for source in op.rows("sources"):
        if source["conversation"] == key:
            op.update("sources", source, redacted=array("I", [record]).tobytes())


def _change_made(op: Operator, key: int, number: int) -> None:
    """Say that another record or another event belongs to the last event."""
    for row in op.rows("made"):
        if row["conversation"] == key:
            numbers = array("I", zlib.decompress(bytes(row["places"])))
            numbers[number - 3] += 1
            op.update("made", row, places=zlib.compress(numbers.tobytes()))


def _remove_made(op: Operator, key: int, entry: int) -> None:
    """Remove what the list says of one record."""
    for row in op.rows("made"):
        if row["conversation"] == key:
            numbers = array("I", zlib.decompress(bytes(row["places"])))
            del numbers[3 * entry : 3 * entry + 3]
            op.update("made", row, places=zlib.compress(numbers.tobytes()))


# -- the documents of imports, of which an export writes the texts between the records


def of_documents(op: Operator) -> Iterator[Attack]:
    for name in ("opened", "unopened"):
        key = op.conversation(name)["key"]
        for what, order in (("lacks", [0, 2]), ("repeats", [0, 1, 1, 2]), ("exchanges", [1, 0, 2])):
            yield Attack(
                f"{name}: its document {what} a record",
                "document",
                partial(_change_about, key=key, path=("frame", "order"), new=order),
            )
        message = ', {"role": "assistant", "content": "burn it"}, '
        for place, text in enumerate(('{"task": "burn it", "messages": [', message, message)):
            where = "before the first" if place == 0 else "between the"
            yield Attack(
                f"{name}: a text {where} records of its document, {place}",
                "document",
                partial(_change_about, key=key, path=("frame", "between", place), new=text),
            )
        for field, value in (("secret", "no number"), ("imported_at", "now"), ("paths", None)):
            yield Attack(
                f"{name}: {field} beside its records is {value!r}",
                "beside records",
                partial(_change_about, key=key, path=(field,), new=value),
            )

        call = {"model": "gpt-4o", "day": "2026-11-01", "calls": 1, "prompt_tokens": 9, "cost": 9.5}
        for field, beside in (
            ("title", "Burn it"),
            ("where", {"parent": "boss", "cwd": "/elsewhere"}),
            ("usage", [call]),
            ("unread", [1]),
        ):
            yield Attack(
                f"{name}: another {field} beside its records, and its figures are counted again",
                "beside records",
                partial(_change_beside, key=key, field=field, new=beside),
            )


def _change_beside(op: Operator, key: int, field: str, new: Any) -> None:
    _change_about(op, key, (field,), new)
    with open_store(op.url, keys=KEYS) as store:
        forget_figures(store, op.name_of(key))
        FiguresOfStore(store).keep_up()


def _change_about(op: Operator, key: int, path: tuple[Any, ...], new: Any) -> None:
    """Change a field of what is stored beside the records of a source."""
    for source in op.rows("sources"):
        if source["conversation"] == key:
            about = json.loads(zlib.decompress(bytes(source["about"])))
            changed = json.dumps(_with(about, path, new)).encode()
            op.update("sources", source, about=zlib.compress(changed))


# -- what lists show, with right checksums


def of_lists(op: Operator) -> Iterator[Attack]:
    for name, old, new in (("documents", b"Grain", b"Straw"), ("archived", b"no", b"or")):
        yield Attack(
            f"{name}: {old!r} in its attributes is {new!r}",
            "attributes in lists",
            partial(_change_attributes, name=name, old=old, new=new),
        )
    yield Attack(
        "documents: lists find it by other attributes",
        "attributes in lists",
        partial(_exchange_digests, name="documents"),
    )
    for name in ("documents", "empty fork", "archived"):
        yield Attack(
            f"{name}: lists lack it", "attributes in lists", partial(_leave_out_of_lists, name=name)
        )
    for name, version in (("documents", 0), ("unopened", 0), ("empty fork", 0)):
        yield Attack(
            f"{name}: a record of other attributes",
            "attributes in lists",
            partial(_add_attributes, name=name, version=version),
        )
    yield Attack(
        "unopened: lists have a later time for it",
        "attributes in lists",
        partial(_change_time_in_lists, name="unopened"),
    )
    for name in ("paid", "archived"):
        yield Attack(
            f"{name}: its figures have a call more",
            "figures",
            partial(_add_call, name=name),
        )
    yield Attack(
        "paid: a conversation that is still being imported has the same figures",
        "figures",
        partial(_copy_figures, name="paid"),
    )
    yield Attack(
        "paid: the state of its figures has another cost, and its figures are outdated",
        "figures",
        partial(_change_state_of_figures, name="paid"),
    )


def _change_record(op: Operator, name: str, projection: str, old: bytes, new: bytes) -> None:
    key = op.conversation(name)["key"]
    for row in op.rows("records"):
        if row["conversation"] == key and op.text(row["projection"]) == projection:
            body = bytes(row["body"]).replace(old, new)
            changed = op.with_right_checksum({**row, "body": body})
            op.update("records", row, body=body, checksum=changed["checksum"])


def _change_attributes(op: Operator, name: str, old: bytes, new: bytes) -> None:
    _change_record(op, name, "attributes", old, new)


def _add_attributes(op: Operator, name: str, version: int) -> None:
    """Give a conversation other attributes beside those that it has."""
    key = op.conversation(name)["key"]
    [row] = [
        row
        for row in op.rows("records")
        if op.text(row["projection"]) == "attributes"
        and row["conversation"] == op.conversation("documents")["key"]
    ]
    body = bytes(row["body"]).replace(b"Grain", b"Straw")
    changed = {**row, "conversation": key, "version": version, "body": body}
    op.insert("records", op.with_right_checksum(changed))


def _change_time_in_lists(op: Operator, name: str) -> None:
    key = op.conversation(name)["key"]
    for table in ("listing", "listed"):
        op.execute(f"UPDATE {table} SET at = at + ? WHERE conversation = ?", HOUR, key)


def _exchange_digests(op: Operator, name: str) -> None:
    key = op.conversation(name)["key"]
    for row in op.rows("listing"):
        if row["conversation"] == key:
            digests = bytes(row["digests"])[:16] + b"of other attribs"
            op.execute("DELETE FROM listed WHERE conversation = ?", key)
            op.update("listing", row, digests=digests)
            for digest in (digests[:16], digests[16:]):
                op.insert("listed", {"digest": digest, "at": row["at"], "conversation": key})


def _leave_out_of_lists(op: Operator, name: str) -> None:
    key = op.conversation(name)["key"]
    for table in ("listing", "listed"):
        op.execute(f"DELETE FROM {table} WHERE conversation = ?", key)


def _add_call(op: Operator, name: str) -> None:
    key = op.conversation(name)["key"]
    columns = "day, model, above, by_condenser, calls, prompt_tokens, cost"
    model = op.rows("figure_calls")[0]["model"]
    op.execute(
        f"INSERT INTO figure_calls (conversation, {columns}) VALUES (?, ?, ?, 0, 0, 1, 5, 99)",
        *(key, op.rows("figure_calls")[0]["day"], model),
    )


def _copy_figures(op: Operator, name: str) -> None:
    state = op.conversation(name)
    hidden = {"key": 2**40, "id": b"hidden" if isinstance(state["id"], bytes) else "hidden"}
    op.insert("conversations", {**state, **hidden, "visible": op.flag(False)})
    for table in ("figures", "figure_calls"):
        for row in op.rows(table):
            if row["conversation"] == state["key"]:
                op.insert(table, {**row, "conversation": hidden["key"]})


def _change_state_of_figures(op: Operator, name: str) -> None:
    _change_record(op, name, "figures", b"0.25", b"9.25")
    op.execute(
        "UPDATE figures SET version = 1 WHERE conversation = ?", op.conversation(name)["key"]
    )


# -- two conversations, and older states


def of_two_places(op: Operator) -> Iterator[Attack]:
    for one, other in (("paid", "refused"), ("opened", "unopened"), ("chat", "fork")):
        yield Attack(
            f"{one} and {other}: names exchanged",
            "conversations exchanged",
            partial(_exchange_names, one=op.conversation(one), other=op.conversation(other)),
        )
        for table in ("events", "sources", "made", "blocks", "idempotency_keys", "records"):
            yield Attack(
                f"{one} and {other}: {table} exchanged",
                f"{table} exchanged",
                partial(
                    _exchange_rows,
                    table=table,
                    one=op.conversation(one)["key"],
                    other=op.conversation(other)["key"],
                ),
            )
    for name in ("chat", "paid", "documents", "sealed", "streamed"):
        key = op.conversation(name)["key"]
        yield Attack(
            f"{name}: as in a backup without its last event",
            "partly restored",
            partial(_restore_partly, key=key, last=len(op.events(key)) - 1),
        )
    for name in ("fork", "empty fork", "detached"):
        for parent in ("paid", "fork", "boss"):
            yield Attack(
                f"{name}: its parent is {parent}",
                "parent of a fork",
                partial(_change_parent, name=name, parent=op.conversation(parent)["key"]),
            )


def _exchange_names(op: Operator, one: Stored, other: Stored) -> None:
    update = "UPDATE conversations SET id = ? WHERE key = ?"
    free = b"free" if isinstance(one["id"], bytes) else "free"
    for name, key in ((free, one), (one["id"], other), (other["id"], one)):
        op.execute(update, name, key["key"])


def _exchange_rows(op: Operator, table: str, one: int, other: int) -> None:
    free = 2**40
    for key, new in ((one, free), (other, one), (free, other)):
        op.execute(f"UPDATE {table} SET conversation = ? WHERE conversation = ?", new, key)


def _restore_partly(op: Operator, key: int, last: int) -> None:
    _cut(op, key, last)
    op.execute("DELETE FROM records WHERE conversation = ? AND version > ?", key, last)
    for table in ("figures", "figure_calls", "figure_counts", "listing", "listed"):
        op.execute(f"DELETE FROM {table} WHERE conversation = ?", key)


def _change_parent(op: Operator, name: str, parent: int) -> None:
    key = op.conversation(name)["key"]
    op.execute("UPDATE conversations SET parent = ? WHERE key = ?", parent, key)


def _forge_source(op: Operator, key: int, old: bytes, new: bytes) -> None:
    """Change the bytes of the records of a source, with right hashes and heads."""
    for block in op.rows("blocks"):
        if block["conversation"] != key:
            continue
        raw = zlib.decompress(bytes(block["body"])).replace(old, new)
        index = zlib.decompressobj()
        numbers = memoryview(index.decompress(bytes(block["places"]))).cast("I")
        hashes = b""
        at = 0
        for record in range(block["records"]):
            start = at + numbers[2 * record]
            at = start + numbers[2 * record + 1]
            hashes += sha256(raw[start:at]).digest()[:16]
        places = zlib.compress(bytes(numbers)) + hashes
        op.update("blocks", block, places=places, body=zlib.compress(raw))
        head = chain_head(GENESIS, hashes)
        op.execute("UPDATE sources SET head = ? WHERE conversation = ?", head, key)
