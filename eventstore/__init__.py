"""The write side of foldlog: the log of events.

A conversation is an append-only log of events with ids 0, 1, 2, …. A conversation's version is its
number of events. No module of ``foldlog.eventstore`` makes a View or calls a model. A redaction
does not delete the stored records of Views, because they contain ids and no texts.

    store.py          append, read and follow events
    opening.py        open the store that a URL names
    events.py         the kinds of events
    codec.py          convert events to bytes and back
    codec_json.py     store values that JSON cannot hold
    append_rules.py   the rules of an append
    documents/        named values beside the events
    lists/            lists of conversations by attribute and activity
    log/              read and write one conversation in one transaction
    recorders/        read and write the rows of a database
    sources/          the files from which conversations were imported
    maintenance/      verify, copy, erase and similar tasks
    proof/            checkpoints, with which an auditor finds changes
    files/            read and write files
    integrations/     the adapter for the ``eventsourcing`` library
    cached_values.py  computed values that can be deleted and made again
    arguments.py      check the arguments of callers
    times.py          convert times of callers, sources and other programs
    usage.py          the tokens of a model's call, as ``meta`` of an event has them
    errors.py         the errors of the store
"""

if __name__ != "foldlog.eventstore":  # two imports would make each class twice
    raise ImportError(
        "there is no package 'eventstore'; import 'foldlog.eventstore'", name=__name__
    )

from foldlog._base import lazy

_HOMES = lazy.homes_of(__path__[0])
__all__ = [*_HOMES]
__getattr__ = lazy.lazy_getattr(__name__, _HOMES)
