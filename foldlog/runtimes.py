"""The names that an adapter of an agent runtime uses, besides ``foldlog`` and ``foldlog.formats``.

HistoryRecorder                    appends the records of a runtime
Records, HistoryRecords, RecordSpan    read the stored records again
change_of_prompt, staying          make the event that stores a change of a runtime's messages
CURRENT, RuntimeCall               the current tool call of a runtime
note_left_behind                   notes the calls that a killed program left open
taken_back                         the message that lists the effects of events taken back
CachedValues                       caches values beside conversations
companion, companion_of            ids of companion conversations
Erasure, erase_conversations       erases conversations with their companions
place_of, is_of                    the index of an event in its record, and its format
Recent                             a cache of the most recently used values
REDACTED                           the value that replaces redacted content
usage_meta                         the usage of a reply, for ``meta`` of an event
format_named                       a format by its name
dicts_in, text_or_none, values_in, within, parse, parse_stored    read values of JSON
Fields                             the type of a JSON object
json_text, json_of                 write values of JSON
COMPACTED_BY_PROVIDER              the reason of a condensation that a provider's server made
JsonLines, record_in               read records from files
blocks_of                          the contents of OpenHands' events
"""

from foldlog._base.values import values_in as values_in
from foldlog._history.effects import taken_back as taken_back
from foldlog._history.runtime_calls import (
    CURRENT as CURRENT,
    RuntimeCall as RuntimeCall,
    note_left_behind as note_left_behind,
)
from foldlog._imports.recording import HistoryRecorder as HistoryRecorder
from foldlog._privacy.erasing import (
    Erasure as Erasure,
    erase_conversations as erase_conversations,
)
from foldlog._reports.records.stored import (
    HistoryRecords as HistoryRecords,
    Records as Records,
    RecordSpan as RecordSpan,
)
from foldlog.eventstore.cached_values import CachedValues as CachedValues
from foldlog.formats.event_fields import REDACTED as REDACTED
from foldlog.formats.event_places import is_of as is_of, place_of as place_of
from foldlog.formats.files.readers import JsonLines as JsonLines, record_in as record_in
from foldlog.formats.json_text import (
    json_of as json_of,
    json_text as json_text,
    parse as parse,
    parse_stored as parse_stored,
)
from foldlog.formats.messages import COMPACTED_BY_PROVIDER as COMPACTED_BY_PROVIDER
from foldlog.formats.open_calls import Recent as Recent
from foldlog.formats.openhands_v1.contents import blocks_of as blocks_of
from foldlog.formats.prompt_changes import change_of_prompt as change_of_prompt, staying as staying
from foldlog.formats.record import (
    Fields as Fields,
    dicts_in as dicts_in,
    text_or_none as text_or_none,
    usage_meta as usage_meta,
    within as within,
)
from foldlog.formats.registry import format_named as format_named
from foldlog.projections.conversations.companions import (
    companion as companion,
    companion_of as companion_of,
)
