"""The types of arguments and results, for use in annotations."""

from foldlog._history.continuing import Continuation as Continuation
from foldlog._history.histories import ChosenCondenser as ChosenCondenser
from foldlog._history.history import ExpectedVersion as ExpectedVersion
from foldlog._history.request_names import SentRequest as SentRequest
from foldlog._history.streamed_reply import (
    ReplyPart as ReplyPart,
    StreamedReply as StreamedReply,
    UnfinishedReply as UnfinishedReply,
)
from foldlog._reports.answers.views import HandOverDocument as HandOverDocument
from foldlog._reports.figures.stats import Stats as Stats
from foldlog._reports.search.searching import Hit as Hit
from foldlog.condensers import AgentModel as AgentModel
from foldlog.eventstore import (
    Content as Content,
    ConversationRow as ConversationRow,
    FoundEvent as FoundEvent,
    RecentConversations as RecentConversations,
    Recorded as Recorded,
)
from foldlog.formats.deltas import (
    AboutDelta as AboutDelta,
    CallDelta as CallDelta,
    Delta as Delta,
    EndDelta as EndDelta,
    ReasoningDelta as ReasoningDelta,
    TextDelta as TextDelta,
    as_ui_chunks as as_ui_chunks,
)
from foldlog.projections import Lifetimes as Lifetimes, ModelRequest as ModelRequest
