"""The names for programs that extend foldlog: read models, formats, and tools that administer a
store.

Programs that only use a store import from ``foldlog.eventstore``. If ``foldlog.eventstore.inside``
lacks a name, import the name from the module that defines it.
"""

from types import ModuleType as _ModuleType

from foldlog.eventstore.arguments import (
    check_path as check_path,
    check_reason as check_reason,
    check_text as check_text,
    check_time as check_time,
    check_unicode as check_unicode,
    check_whole as check_whole,
)
from foldlog.eventstore.codec_json import describe_value as describe_value
from foldlog.eventstore.documents.values import (
    newest_documents as newest_documents,
    newest_value as newest_value,
    newest_values as newest_values,
)
from foldlog.eventstore.errors import count as count, install_command as install_command
from foldlog.eventstore.events import (
    MAY_BE_STRUCTURAL as MAY_BE_STRUCTURAL,
    VIEWS as VIEWS,
    Forgotten as Forgotten,
    is_structural as is_structural,
    names_source_ids as names_source_ids,
)
from foldlog.eventstore.log.appending import (
    Appending as Appending,
    NothingRedacted as NothingRedacted,
    can_append_all as can_append_all,
)
from foldlog.eventstore.log.finding import (
    Generation as Generation,
    Moment as Moment,
    beginning_with as beginning_with,
    query_all as query_all,
)
from foldlog.eventstore.log.redacted import (
    can_be_redacted as can_be_redacted,
    has_content as has_content,
    without_content as without_content,
)
from foldlog.eventstore.log.row import (
    from_microseconds as from_microseconds,
    time_before as time_before,
)
from foldlog.eventstore.log.writing import (
    InlineProjection as InlineProjection,
    WriteTransaction as WriteTransaction,
)
from foldlog.eventstore.recorders.types import (
    Conversation as Conversation,
    Outcome as Outcome,
    RecalledKey as RecalledKey,
    Record as Record,
)
from foldlog.eventstore.recorders.urls import (
    as_url as as_url,
    parse_url as parse_url,
    without_password as without_password,
)
from foldlog.eventstore.store import prepare_append as prepare_append
from foldlog.eventstore.times import (
    EPOCH as EPOCH,
    EventTime as EventTime,
    event_microseconds as event_microseconds,
    event_time as event_time,
    in_utc as in_utc,
    parse_event_time as parse_event_time,
)

__all__ = [
    name
    for name, value in globals().items()
    if name[0] != "_" and not isinstance(value, _ModuleType)
]
