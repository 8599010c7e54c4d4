"""Open the store that a URL names: ``open_store(url)``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from foldlog._base import telemetry
from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.errors import InvalidOption, install_command
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.seal import EVENT_BYTES_MAX, Compression, WriteSettings
from foldlog.eventstore.recorders import urls
from foldlog.eventstore.recorders.base import PATIENCE_S, Recorder
from foldlog.eventstore.store import Store

if TYPE_CHECKING:
    from foldlog.eventstore.maintenance.backup import Restored


def open_store(
    url: str | os.PathLike[str],
    *,
    durability: Literal["full", "relaxed"] = "full",
    clock: Callable[[], datetime] | None = None,
    event_bytes_max: int = EVENT_BYTES_MAX,
    compression: Compression | None = None,
    keys: KeyRing | None = None,
) -> Store:
    """Open the store that ``url`` names. If a SQLite file does not exist, make it with mode 0600.

    Args:
        url: A URL, or the path of a SQLite file. A path is a ``Path``, or a text with a dot or a
            slash, such as ``history.db``. ``sqlite:///history.db`` is a relative path, and
            ``sqlite:////srv/history.db`` is an absolute path. A store with the URL ``memory:``
            exists only while it is open. ``postgresql://user@h1,h2/database`` accepts all options
            of libpq and the options in ``docs/POSTGRESQL.md``. ``?mode=ro`` opens a store for
            reading only. ``?mode=rw`` never makes a new store. ``?patience_s=5`` waits up to 5
            seconds for other writers, instead of 60 seconds. ``?plain=allowed`` lets a process
            without a key begin plain conversations in a store with encrypted conversations.
        durability: ``"full"``: events are on disk when ``append`` returns. ``"relaxed"``: a power
            cut may lose the newest commits, but never a part of a commit. A crash of the program
            loses no commit.
        clock: Returns the present time, in place of the clock of this machine.
        event_bytes_max: The maximal size of an event that this process appends, in bytes. A body
            larger than the default maximum is not compressed.
        compression: ``"zstd"``, ``"zlib"`` or ``"none"``, for new bodies (stored events). If it is
            None, the environment decides: ``FOLDLOG_COMPRESSION``.
        keys: New bodies are encrypted under the first key of the ring. Bodies in other forms can
            still be read, and ``rekey`` changes their form. If it is None, the environment decides:
            ``FOLDLOG_KEY`` and ``FOLDLOG_KEY_FILE``.

    Raises:
        InvalidOption: The URL or an option is wrong.
        StoreUnavailable: The store cannot be opened now.
        StoreRefused: The file is not a store, or a newer version made it.
        KeyUnavailable: A key is missing or malformed.
    """
    if keys is not None and not isinstance(keys, KeyRing):
        raise TypeError(
            f"keys must be a KeyRing, such as KeyRing.from_file(path), not a {type(keys).__name__}"
        )
    if clock is not None and not callable(clock):
        raise TypeError(f"clock must be a function that returns the present time, not {clock!r}")
    check_whole("event_bytes_max", event_bytes_max, 1)  # check before a file is made
    with telemetry.span("foldlog.open"):
        make_store: Callable[..., Store] = Store
        if telemetry.telemetry is not None:
            make_store = telemetry.telemetry.store  # a ``Store`` that sends telemetry
        recorder, settings = recorder_and_settings(url, durability, compression, keys)
        return make_store(recorder, settings, clock=clock, event_bytes_max=event_bytes_max)


def recorder_and_settings(
    url: str | os.PathLike[str],
    durability: Literal["full", "relaxed"] = "full",
    compression: Compression | None = None,
    keys: KeyRing | None = None,
) -> tuple[Recorder, WriteSettings]:
    """Open the database that a URL names. Return its recorder and the settings of new rows: see
    ``open_store``.
    """
    settings = WriteSettings.chosen(compression, keys)
    location = urls.parse_url(urls.as_url(url))
    if "plain" in location.options:
        settings = settings._replace(plain_allowed=True)
    if durability not in ("full", "relaxed"):
        raise InvalidOption(f"durability is {durability!r}; use full or relaxed")
    if location.scheme == "memory":
        from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder

        return MemoryRecorder(), settings
    options = location.options
    durable = options.get("durability", durability) == "full"
    if location.scheme == "sqlite":
        from foldlog.eventstore.recorders.sqlite.recorder import SQLiteRecorder

        mode = options.get("mode", "rwc")
        patience_s = float(options.get("patience_s", PATIENCE_S))
        recorder: Recorder = SQLiteRecorder(
            location.path,
            create=mode == "rwc",
            writable=mode != "ro",
            durable=durable,
            patience_s=patience_s,
        )
        return recorder, settings
    try:
        from foldlog.eventstore.recorders.postgres import PostgresRecorder, Stores
    except ImportError as error:
        raise InvalidOption(
            f"PostgreSQL needs psycopg ({error}): {install_command('postgres')}"
        ) from error
    if "stores" in options:
        return Stores(location.path, options, durable=durable), settings
    return PostgresRecorder(location.path, options, durable=durable), settings


def restore_store(
    url: str | os.PathLike[str],
    backup: str,
    *,
    keys: KeyRing | None = None,
    read_models: Iterable[str] = (),
) -> Restored:
    """Verify the file ``backup``, and replace the SQLite store at ``url`` by a copy of ``backup``.
    The store at ``url`` need not exist.

    A process that has the former store open can no longer write: its next append raises
    ``StoreRefused``, and the process must open the store again. The former file is kept beside the
    restored file, with its write-ahead log. A new event of the restored store never gets a position
    that the former store used, so followers can continue. After the next write, followers read a
    ``StoreRestored``, which names the position after which events were lost.

    ``keys`` are needed to verify encrypted conversations. If ``keys`` is None, the keys of the
    environment are used. ``read_models`` names the read models that may contain events of the
    store. The restored store registers each read model as if it had confirmed position 0.

    Raises ``StoreUnavailable`` if a file cannot be read or written now, and ``KeyUnavailable`` if a
    key is missing. Raises ``StoreRefused`` if the backup is damaged or not a store, or if the file
    at ``url`` belongs to another program. If the function raises an error, nothing was changed.
    Cost: reading the backup three times.
    """
    location = urls.parse_url(urls.as_url(url))
    if location.scheme != "sqlite":
        raise InvalidOption(
            "only a store in a SQLite file can be restored; restore a PostgreSQL database with"
            " pg_restore"
        )
    from foldlog.eventstore.maintenance.backup import restore

    return restore(backup, location.path, WriteSettings.chosen(None, keys), read_models)
