"""The place where the source of a conversation was written: its program, folder, branch and model.

The attributes of the place are stored and deleted with the source, and no event contains them.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping

import msgspec

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import CorruptEvent, Store
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.reading import about, continued
from foldlog.eventstore.sources.tables import TITLE, WHERE, Sources
from foldlog.formats.format import Format
from foldlog.formats.skeleton import title_in
from foldlog.projections.conversations.companions import companion_of


class _About(msgspec.Struct):
    where: dict[str, str] = {}


_decode = msgspec.json.Decoder(_About).decode


def where_written(format: Format, about_source: JsonMap, title: str | None) -> dict[str, str]:
    """Return the attributes of the place in which a source was written, or none if the source names
    no place.
    """
    where = about_source.get(WHERE) or {}
    if where and title:
        where = {**where, "title": title}
    return {"program": format.name, **where} if where else {}


def place_of(store: Store, conversation: str) -> dict[str, str]:
    """Return the attributes of the place in which the source of a conversation was written."""

    def read(reader: Reader) -> dict[str, str]:
        database = store.database
        return place_in(database, reader, database.find(reader, conversation, as_stored=True))

    return store.database.recorder.query(read)


def place_in(
    database: Database, reader: Reader, conversation: Conversation | None
) -> dict[str, str]:
    """Return what ``place_of`` returns, in the transaction of ``reader``."""
    source = Sources(database, reader).of_state(conversation)
    if source is None:
        return {}
    from foldlog.formats.registry import format_named  # This import loads all formats.

    format = format_named(source.format)
    about_source = about(source)
    return where_written(
        format, about_source, about_source.get(TITLE) or _title_counted(format, source.sums)
    )


def _title_counted(format: Format, sums: bytes) -> str | None:
    return title_in(sums) if format.skeleton is not None and sums else None


def program_in(database: Database, reader: Reader, conversation: Conversation) -> str | None:
    """Return the format of the program in which a conversation went on. Return None if it went on
    in no other program.
    """
    source = Sources(database, reader).of_state(conversation)
    handed_over = None if source is None else continued(source)
    if source is None or handed_over is None:
        return None
    is_own = source.conversation == conversation.key
    return source.format if is_own or conversation.begins >= handed_over.version else None


def places(
    store: Store, damaged: dict[str, CorruptEvent] | None = None
) -> dict[str, dict[str, str]]:
    """Return the attributes that are stored with sources, in the order of import. A damaged source
    is left out, and its error is added to ``damaged`` under the id of its conversation. Cost: the
    function reads the stored fields about all sources.
    """
    errors = {} if damaged is None else damaged

    def read(reader: Reader) -> dict[str, dict[str, str]]:
        by_conversation = {}
        for name, format, fields in Sources(store.database, reader).abouts(_decode, errors):
            if fields.where:
                by_conversation[name] = {"program": format, **fields.where}
        return by_conversation

    return store.database.recorder.query(read)


def in_folder(
    places: Mapping[str, Mapping[str, str]], folder: str, *, below: bool = False
) -> list[str]:
    """Return the conversations whose source was written in ``folder``, or also in the folders
    ``below`` it, without sub-agents and companions. ``places`` is the result of ``places()``, and
    ``folder`` a path without links.
    """

    def is_in(cwd: str) -> bool:
        try:
            real = os.path.realpath(cwd)
        except ValueError:  # no path has a NUL or half a surrogate pair
            return False
        return real == folder or (below and real.startswith(f"{folder.rstrip(os.sep)}{os.sep}"))

    cwds = {place["cwd"] for place in places.values() if "cwd" in place}
    folders = {cwd for cwd in cwds if is_in(cwd)}
    return [
        name
        for name, place in places.items()
        if place.get("cwd") in folders and _is_session(name, places)
    ]


def _is_session(name: str, conversations: Container[str]) -> bool:
    """Return whether a conversation is a session of its own: no companion, and no sub-agent, whose
    id begins with the id of its parent.
    """
    parent, _, _ = name.rpartition("/")
    return not companion_of(name) and parent not in conversations
