"""An event-sourced store behind AI-agent runtimes: agents forget, their history does not.

    import foldlog
    from foldlog import Message

    with foldlog.open("history.db", condenser="digest") as histories:
        history = histories["c1"]
        history.append(Message(source="user", content="hi"))
        messages = history.prepare().to_messages()          # the messages for the model
        reply = client.chat.completions.create(model=..., messages=messages, tools=...)
        history.append_reply(reply)                         # a message, or an action for every call
        for call in history.open_calls():
            history.append_tool_result(call, run(call.tool, call.arguments))

The public names:

    Open        open returns Histories, and histories["c1"] is a History; Maintenance; Store;
                KeyRing for encryption; Compression; Lease says which worker drives a history
    Events      Message, Action, Observation, SystemMessage, Annotation, Retraction, Redaction,
                Erased, CondensationAction, CondensationRequest, CondensationSummary; an Event is
                any of them; from_openai makes events of a model's reply; ANY_VERSION appends
                after the appends of other writers; DELETED removes a document
    Views       View (the events that the model is shown), Difference, Why, Fact, Dropped
    Forgetting  Condenser, Condensation, LLM, LLMConfig for its limits, RecallTool,
                request_condensation_tool, is_context_window_error
    Effects     effect marks a tool; Effect is the state of a call
    Errors      EventStoreError is the base of VersionConflict, ConversationNotFound,
                ConversationErased, StoreUnavailable, LeaseTaken, NoCondensationAvailable and all
                other errors in foldlog.errors
    More        foldlog.types and foldlog.maintenance: arguments and results that programs seldom
                name; foldlog.aio: the same for asyncio; foldlog.formats: import and export;
                foldlog.otel: traces and metrics; foldlog.replays: replay a
                history with another condenser; foldlog.testing: recorded runs as tests;
                foldlog.commands: a command of your own; the
                packages foldlog.eventstore, foldlog.projections and foldlog.condensers

``help(foldlog.History)`` lists the methods of a history.

The files of this package, from the top floor down; an import goes downward:

    commands.py                 a command of your own; python -m foldlog is the command
    _app/                       what people look at: the command, the pages, the service,
                                coding agents
    adapters/                   stores for agent runtimes

    runtimes.py                 what adapters take
    testing.py _testing/        recorded runs as tests, a plugin of pytest
    aio.py                      the interface for async code
    errors.py types.py          the errors; types of arguments and results
    replays.py otel.py          replay a history with another condenser; traces and metrics
    _history/                   the interface for agent runtimes
    maintenance.py              the tasks of an administrator
    _privacy/                   erasure, redaction, and the search for their texts
    _imports/                   imported records, byte for byte

    _reports/                   figures, search, comparisons and audits, from histories
    formats/                    histories of other agents to events and back
    condensers projections eventstore
                                links to the folders at the root: forgetting, Views, the log
    _base/                      telemetry, JSON values, clocks, lazy names
"""

from foldlog._base import lazy, version

__version__ = version.VERSION

_HOMES = lazy.homes_of(__path__[0])
"""Maps each public name to its module. Type checkers read the same names in ``__init__.pyi``."""

# ``from foldlog import *`` imports no submodules, and does not replace Python's own ``open``.
__all__ = [name for name, home in _HOMES.items() if home != "foldlog" and name != "open"]

__getattr__ = lazy.lazy_getattr(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({"__version__", *_HOMES})
