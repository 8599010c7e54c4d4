"""The protections of adapters: see ``tests.protections``."""

from __future__ import annotations

from tests.protections import Always, Argument, Gone, Instead, Never, Part, Protection

_ADK_TEST = "tests/adapters/google_adk/test_service.py"
_PYDANTIC_TEST = "tests/adapters/pydantic_ai/test_store.py"
_LANGGRAPH_TEST = "tests/adapters/langgraph/test_saver.py"
_STEPS_TEST = "tests/adapters/pydantic_ai/test_steps.py"

PROTECTIONS = {
    "pydantic-revision": Protection(
        "pydantic-ai: a save is refused if another one came since the conversation was read",
        "foldlog:FoldlogConversationStore._write_once",
        Never("revision"),
        f"{_PYDANTIC_TEST} -k random_operations",
    ),
    "pydantic-version": Protection(
        "… also where it comes between the look and the append",
        "foldlog:FoldlogConversationStore._write_once",
        Never("recorder"),
        f"{_PYDANTIC_TEST} -k precedes_after",
    ),
    "pydantic-delete": Protection(
        "pydantic-ai: what was saved since it was looked at is not deleted",
        "foldlog:FoldlogConversationStore.delete_record",
        Argument("expected"),
        f"{_PYDANTIC_TEST} -k looked_at",
    ),
    "pydantic-shared": Protection(
        "pydantic-ai: a fork gets copies of what it shares before its parent is erased",
        "foldlog:FoldlogConversationStore.delete_record",
        Argument("detach_forks"),
        f"{_PYDANTIC_TEST} -k keeps_what_it_shares",
    ),
    "pydantic-fork": Protection(
        "pydantic-ai: a fork without a record of its own has not that of its parent",
        "foldlog:FoldlogConversationStore._value",
        Part("conversation_id"),
        f"{_PYDANTIC_TEST} -k before_it_had",
    ),
    "pydantic-branch": Protection(
        "pydantic-ai: a message goes after its parent, so the View is the branch that the SDK has",
        "foldlog:Moves.go_to",
        Never("_version"),
        f"{_PYDANTIC_TEST} -k branch_is_a_retraction",
    ),
    "pydantic-cancelled": Protection(
        "pydantic-ai: a cancelled save is waited for",
        "foldlog:to_its_end",
        Argument("finish"),
        f"{_PYDANTIC_TEST} -k TestKeeps and sqlite",
    ),
    "pydantic-before-model": Protection(
        "pydantic-ai: a request is saved before the model is asked",
        "foldlog:FoldlogSteps.prepare_model_request",
        Gone("_save"),
        f"{_STEPS_TEST} -k before_the_model",
    ),
    "pydantic-before-tools": Protection(
        "pydantic-ai: … and a response before its tools are called",
        "foldlog:FoldlogSteps.after_node_run",
        Gone("messages"),
        f"{_PYDANTIC_TEST} -k TestKeeps and sqlite",
    ),
    "pydantic-own-run": Protection(
        "pydantic-ai: each run has a capability of its own",
        "foldlog:FoldlogSteps.for_run",
        Instead("FoldlogSteps", "steps = self"),
        f"{_STEPS_TEST} -k two_conversations",
    ),
    "types": Protection(
        "values that JSON does not have are marked",
        "foldlog:to_plain",
        Instead("to_plain tuple", "return [to_plain(each, unknown=unknown) for each in value]"),
        f"{_PYDANTIC_TEST} -k fresh_open",
    ),
    "types-of-others": Protection(
        "… and an object that looks marked is not taken for one",
        "foldlog:to_plain",
        Never("startswith"),
        f"{_PYDANTIC_TEST} -k fresh_open",
    ),
    "adk-stale": Protection(
        "Google ADK: an append to an old state of a session is refused",
        "foldlog:FoldlogSessionService._append",
        Never("known"),
        f"{_ADK_TEST} -k makes_a_session_stale",
    ),
    "adk-version": Protection(
        "… also where another event comes between the look and the append",
        "foldlog:FoldlogSessionService._write",
        Argument("expected_version"),
        f"{_ADK_TEST} -k precedes_after",
    ),
    "adk-together": Protection(
        "Google ADK: an event and its changes of shared states are stored together or not at all",
        "foldlog:FoldlogSessionService._write",
        Argument("together"),
        f"{_ADK_TEST} -k or_not_at_all",
    ),
    "adk-unordered": Protection(
        "Google ADK: events whose times are not in order are sorted, as by the SDK's own service",
        "foldlog:FoldlogSessionService._append",
        Instead("unordered", "about = {**stored.about, }"),
        f"{_ADK_TEST} -k random_operations",
    ),
    "adk-temporary": Protection(
        "Google ADK: temporary state is not stored",
        "foldlog:_record_of",
        Instead("TEMP_PREFIX", "for key in ():"),
        f"{_ADK_TEST} -k random_operations",
    ),
    "adk-deleted": Protection(
        "Google ADK: the id of a deleted session is used again",
        "foldlog:FoldlogSessionService._begin",
        Instead("replace_erased", "raise"),
        f"{_ADK_TEST} -k used_again",
    ),
    "adk-cancelled": Protection(
        "Google ADK: a cancelled append is waited for",
        "foldlog:to_its_end",
        Argument("finish"),
        f"{_ADK_TEST} -k TestKeeps and sqlite",
    ),
    "langgraph-deleted": Protection(
        "LangGraph: a run goes on when its thread is deleted",
        "foldlog:Checkpoints.put",
        Never("ConversationErased ConversationNotFound"),
        f"{_LANGGRAPH_TEST} -k thread_is_deleted and own and not async",
    ),
    "langgraph-hook": Protection(
        "… also while it condenses: its model is sent all messages",
        "foldlog:FoldlogSaver.pre_model_hook",
        Never("ConversationErased"),
        f"{_LANGGRAPH_TEST} -k sent_all_messages",
    ),
    "langgraph-own": Protection(
        "LangGraph: what a graph changes in place after a call changes nothing that is stored",
        "foldlog:copied",
        Instead("builtin_types", "return value"),
        f"{_LANGGRAPH_TEST} -k in_place",
    ),
    "langgraph-first-write": Protection(
        "LangGraph: of the writes of a task the first one counts, of its errors the last",
        "foldlog:pending_writes",
        Always("writes"),
        f"{_LANGGRAPH_TEST} -k after_a_fresh_open",
    ),
}
