"""The names that an adapter of an agent runtime uses, besides ``foldlog`` and ``foldlog.formats``.

``HistoryRecorder``   records what a runtime hands over, as its records; ``Records``,
                      ``HistoryRecords`` and
                      ``RecordSpan`` read them again
``change_of_prompt``, ``staying``  what a runtime changed of its list of messages, as events
``CURRENT``, ``RuntimeCall``, ``note_left_behind``  which runtime calls, and what another one left
``KeptBeside``        values kept beside conversations, made again when these change
``companion``, ``companion_of``  the ids of what a runtime keeps beside a conversation
``erase_conversations``  erase conversations with what is beside them
``place_of``, ``is_of``, ``Recent``, ``REDACTED``, ``usage_meta``
                      the place of an event in its record; calls that were last; what stands for
                      redacted content; the usage of a reply as ``meta`` has it
``format_named``      a format by its name
``dicts_in``, ``text_or_none``, ``values_in``, ``within``, ``parse``, ``parse_stored``
                      read values of JSON
``json_text``, ``json_of``  write them; ``COMPACTED_BY_PROVIDER``: the format of an item that a
                            server made
``JsonLines``, ``record_in``  read records of files
``blocks_of``   the contents of OpenHands' events
"""

from foldlog._archive.recording import HistoryRecorder as HistoryRecorder
from foldlog._archive.stored import (
    HistoryRecords as HistoryRecords,
    Records as Records,
    RecordSpan as RecordSpan,
)
from foldlog._cached_values import KeptBeside as KeptBeside
from foldlog._companions import companion as companion, companion_of as companion_of
from foldlog._formats.calls import Recent as Recent
from foldlog._formats.event_fields import REDACTED as REDACTED
from foldlog._formats.files.readers import JsonLines as JsonLines, record_in as record_in
from foldlog._formats.json_text import (
    json_of as json_of,
    json_text as json_text,
    parse as parse,
    parse_stored as parse_stored,
)
from foldlog._formats.messages import COMPACTED_BY_PROVIDER as COMPACTED_BY_PROVIDER
from foldlog._formats.openhands_v1.contents import blocks_of as blocks_of
from foldlog._formats.places import is_of as is_of, place_of as place_of
from foldlog._formats.record import (
    dicts_in as dicts_in,
    text_or_none as text_or_none,
    usage_meta as usage_meta,
    within as within,
)
from foldlog._formats.registry import format_named as format_named
from foldlog._history.runtimes import (
    CURRENT as CURRENT,
    RuntimeCall as RuntimeCall,
    note_left_behind as note_left_behind,
)
from foldlog._maintenance import erase_conversations as erase_conversations
from foldlog._prompt_changes import change_of_prompt as change_of_prompt, staying as staying
from foldlog._values import values_in as values_in
