"""What people may name or have beside histories, and foldlog cannot import: one row each, which is refused by its name.

To import one of them, write its format (``format.py``) and delete its row. A row says by data how a file is recognized:

    records    shapes: a JSON value that has one of them is a record of it, and surely of no format of ours
    documents  keys that an object has together, if it is the whole file or one element of an array
    tables     tables that its SQLite database has
    begins     the first bytes of its file

A shape is a list of features, which must all be there: ``a.b`` a path that exists, where ``a[]`` stands for any element
of an array; ``a=x|y`` one of these texts; ``a:int`` (str, list, dict) a type; ``!`` before a feature: it is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from foldlog._formats.messages import ROLES

_FIRST = re.compile(r"[$\w]+(?:\[\])?")
_TYPES = {"int": int, "str": str, "list": list, "dict": dict}


class Lookalike(NamedTuple):
    """A kind of files that foldlog cannot import: see the page above.

    ``looks_like``  the format of ours for which its records can pass; they are asked for even if that format has them
    ``hint``        what to do, as the end of a sentence
    ``format``      the format of ours whose records these are: a history with some is of that one
    ``not_beside``  shapes that no history with such records has: where one is, these records say nothing
    ``repeats``     whether it only repeats what the histories beside it say: in a folder it is left out, and no finding
    """

    name: str
    records: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    tables: str = ""
    begins: bytes = b""
    looks_like: str = ""
    hint: str = "; export it as OpenAI chat messages, if the program can, and import those"
    format: str | None = None
    not_beside: tuple[str, ...] = ()
    repeats: bool = False

    def decides(self, records: Iterable[Any]) -> bool:
        """Return whether its records decide of which format a history is that begins with these."""
        tests = [[_test(feature) for feature in shape.split()] for shape in self.not_beside]
        return not any(all(test(record) for test in shape) for record in records for shape in tests)


def lookalike_of_record(record: Any, looks_like: str | None) -> Lookalike | None:
    """Return what a record is, if it only passes for one of this format of ours; with None, if it is of none."""
    if type(record) is not dict:
        return None
    keys = frozenset([*record, *[f"{key}[]" for key, value in record.items() if type(value) is list]])
    for lookalike, tests in _possible(keys, looks_like):
        if all(test(record) for test in tests):
            return lookalike
    return None


def lookalike_of_document(keys: Iterable[str]) -> Lookalike | None:
    """Return what an object with these keys is."""
    found = set(keys)
    return next((one for one in LOOKALIKES if any(found.issuperset(each.split()) for each in one.documents)), None)


def lookalike_of_tables(tables: Iterable[str]) -> Lookalike | None:
    """Return what a database with these tables is."""
    found = set(tables)
    return next((each for each in LOOKALIKES if each.tables and found.issuperset(each.tables.split())), None)


def lookalike_of_text(begin: bytes) -> Lookalike | None:
    """Return what a file is that begins with these bytes."""
    text = begin.lstrip()
    return next((each for each in LOOKALIKES if each.begins and text.startswith(each.begins)), None)


@lru_cache(1_000)
def _possible(keys: frozenset[str], looks_like: str | None) -> list[tuple[Lookalike, list[Callable[[Any], bool]]]]:
    """Return the shapes that a record with these keys can have, with their other tests. Most records have none."""
    found = []
    for lookalike in LOOKALIKES:
        for shape in lookalike.records if looks_like in (None, lookalike.looks_like, lookalike.format) else ():
            features = shape.split()
            if keys.issuperset(first[0] for feature in features if (first := _FIRST.match(feature))):
                found.append((lookalike, [_test(feature) for feature in features if feature not in keys]))
    return found


def _test(feature: str) -> Callable[[Any], bool]:
    if feature.startswith("!"):
        test = _test(feature[1:])
        return lambda record: not test(record)
    path, equals, texts = feature.partition("=")
    path, typed, name = path.partition(":")
    keys, wanted, kind = path.split("."), frozenset(texts.split("|")), _TYPES.get(name)
    if equals:
        return lambda record: any(type(value) is str and value in wanted for value in _values(record, keys))
    if typed:
        return lambda record: any(type(value) is kind for value in _values(record, keys))
    return lambda record: any(True for _ in _values(record, keys))


def _values(record: Any, keys: list[str]) -> Iterator[Any]:
    values = [record]
    for key in keys:
        name = key.removesuffix("[]")
        values = [value[name] for value in values if type(value) is dict and name in value]
        if name != key:
            values = [item for value in values if type(value) is list for item in value]
    return iter(values)


_BLOCKS = "tool_use|tool_result|thinking|redacted_thinking|server_tool_use|web_search_tool_result|document"
_GOOSE = (
    "toolRequest|toolResponse|toolConfirmationRequest|frontendToolRequest|redactedThinking|contextLengthExceeded"
    "|summarizationRequested|conversationCompacted|systemNotification"
)
_CHAT, _CLAUDE = "openai-chat", "claude-code"
_CALLS_OF_CHATS = (
    "role tool_calls:list",
    "role function_call:dict",
    "role=tool|function tool_call_id",
    "role=function name",
)

LOOKALIKES: tuple[Lookalike, ...] = (
    Lookalike("Hermes", tables="sessions messages messages_fts"),
    Lookalike(
        "Goose",
        (f"role content[].type={_GOOSE}", "working_dir message_count !role", "role created:int content:list"),
        tables="sessions messages schema_version",
        looks_like=_CHAT,
    ),
    Lookalike(
        "the list that Cline or Roo Code shows its user", ("ts:int type=ask|say",),
        hint="; import api_conversation_history.json beside it",
    ),
    Lookalike("the part of a session that Cline sends", (), ("source_message_count messages",)),
    Lookalike(
        "messages of Anthropic's API",
        (
            f"role !role=tool !tool_calls:list !messageId content[].type={_BLOCKS}",
            *("role ts:int content:list", "role modelInfo"),
        ),
        looks_like=_CHAT,
        hint=" as a chat; name the format: --format anthropic-messages",
        format="anthropic-messages",
        not_beside=_CALLS_OF_CHATS,
    ),
    Lookalike(
        "AI SDK",
        ("role content[].type=tool-call|tool-result", "role parts[].type", "role toolInvocations"),
        looks_like=_CHAT,
    ),
    Lookalike(
        "Haystack", ("role meta:dict content[].text !content[].type", "role content[].tool_call"), looks_like=_CHAT
    ),
    Lookalike(
        "Amazon Bedrock or Strands",
        (
            *("role content[].toolUse", "role content[].toolResult", "role content[].text !content[].type"),
            "message.role message.content[] message_id",
        ),
        looks_like=_CHAT,
    ),
    Lookalike("Kimi", ("role=_system_prompt|_checkpoint|_usage", "timestamp message.payload"), looks_like=_CHAT),
    Lookalike(
        "Google's Gemini API", ("role parts[].text !parts[].type", "role parts[].functionCall"), looks_like=_CHAT
    ),
    Lookalike(
        "items of OpenAI's Responses API",
        (
            "type=function_call call_id name", "type=function_call_output call_id",
            "type=reasoning summary:list", "type=message role content[].type=input_text|output_text",
        ),
        looks_like=_CHAT,
        hint=" as a chat; name the format: --format openai-responses, or codex if Codex wrote it",
        format="openai-responses",
        not_beside=_CALLS_OF_CHATS,
    ),
    Lookalike(
        "a request to a model, with its system prompt beside the messages", (), ("system messages",),
        hint='; write the prompt as the first message, {"role": "system", "content": …}, and import the list',
    ),
    Lookalike("tau2-bench", ("role requestor",), ("simulations tasks",), looks_like=_CHAT),
    Lookalike("Amp", ("role messageId:int",), looks_like=_CHAT),
    Lookalike("LibreChat", ("messageId parentMessageId",), ("conversationId endpoint",), looks_like=_CHAT),
    Lookalike("Qwen Code of 2025", ("type=qwen id timestamp",), looks_like="gemini-cli"),
    Lookalike("DeepSeek", ("message.fragments[].type parent",), looks_like="chatgpt"),
    Lookalike(
        "the output of gemini --output-format stream-json",
        ("type=init session_id model", "type=tool_use|tool_result tool_id", "type=message role timestamp content:str"),
        looks_like=_CHAT,
        hint="; import the session itself, from ~/.gemini/tmp",
    ),
    Lookalike(
        "the output of opencode run --format json", ("type sessionID part.messageID",),
        hint="; import what 'opencode export' writes",
    ),
    Lookalike(
        "an export of OpenCode 2",
        ("type=user id time.created:int text:str !role", "type=assistant id time.created:int model.providerID content"),
        hint="; import its database instead, as 'foldlog import --from opencode' does",
    ),
    Lookalike(
        "the output of pi --mode json", ("type=message_start|message_update|message_end message", "type=agent_start"),
        looks_like="pi", hint="; import the session itself, from ~/.pi/agent/sessions",
    ),
    Lookalike(
        "the output of claude --output-format stream-json",
        ("type session_id !sessionId",),
        looks_like=_CLAUDE,
        hint="; import the session itself, from ~/.claude/projects",
    ),
    Lookalike(
        "the list of prompts of Claude Code", ("display pastedContents project",), hint="; import ~/.claude/projects",
        repeats=True,
    ),
    Lookalike(
        "the list of prompts of Codex", ("session_id ts:int text",), hint="; import ~/.codex/sessions", repeats=True
    ),
    Lookalike(
        "Codex of April 2025", ("session.id session.timestamp items:list",),
        hint="; import the list of its items, with --format codex",
    ),
    Lookalike(
        "the output of codex exec --json", ("type=thread.started thread_id", "type=item.completed item"),
        hint="; import the session itself, from ~/.codex/sessions",
    ),
    Lookalike(
        "the list of prompts of Gemini CLI", ("sessionId messageId:int type=user message:str",),
        hint="; the sessions lie in the folder 'chats' beside it", repeats=True,
    ),
    Lookalike(
        "OpenCode, of which this is one file of many",
        ("sessionID role time.created", "sessionID messageID type", "projectID directory time.created"),
        hint="; import its folder storage",
    ),
    Lookalike(
        "Factory's droid",
        (
            "type=session_start owner",
            "type=message message.role !message.timestamp !message.provider !message.toolCallId",
        ),
    ),
    Lookalike("the index of Copilot CLI", tables="sessions turns", hint="; import its folder session-state"),
    Lookalike("Copilot Chat", ("kind:int v.requests", "kind:int k:list"), ("requests responderUsername",)),
    Lookalike("Zed", ("User.content", "Agent.content")),
    Lookalike("the log of requests of aider", begins=b"TO LLM 2", hint="; import .aider.chat.history.md beside it"),
    Lookalike("SpecStory", begins=b"<!-- Generated by SpecStory"),
    Lookalike("Continue", ("message.role contextItems",), ("history workspaceDirectory",)),
    Lookalike("Crush", tables="sessions messages files"),
    Lookalike("Langfuse", (), ("projectId observations",), hint="; import the array of its observations"),
    Lookalike("LangSmith", ("run_type dotted_order",)),
    Lookalike(
        "messages of LangChain without 'data'", ("type=human|ai content",),
        hint="; write them with messages_to_dict, which foldlog imports",
    ),
    Lookalike("LM Studio", ("versions[].role currentlySelected",), ("messages pinned",)),
    Lookalike("a result of OpenAI's Batch API", ("custom_id response.body",)),
    Lookalike(
        "a file of requests for a batch", ("custom_id body.messages", "custom_id params.messages"),
        hint="; import the messages of each as a list",
    ),
    Lookalike("an export of Open WebUI", ("chat.history.messages user_id",), ("chat user_id",)),
    Lookalike("ShareGPT", ("conversations[].from", "from value:str"), ("conversations id",)),
    Lookalike("smolagents", ("step_number model_input_messages", "step task")),
    Lookalike("Trae Agent", (), ("llm_interactions agent_steps",)),
    Lookalike("AutoGen", ("source models_usage type",), ("agent_states type",)),
    Lookalike("Grok", ("type=tool_result tool_call_id", "type=assistant tool_calls:list content")),
    Lookalike(
        "a chat of roles that are not known", (f"role:str content !role={'|'.join(sorted(ROLES))}",),
        hint="; use the roles assistant, user, system, developer and tool",
    ),
)  # fmt: skip
