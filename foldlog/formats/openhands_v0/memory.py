"""Rebuild the texts that the agent of OpenHands V0 sent to its model. The text in a record may
differ from the text that the model got.

V0 sent a tool call as the model wrote it (``tool_call_metadata``). V0 also sent the user's actions
and their results, in its own sentences. A model that continues an imported history gets the same
texts.

V0 also sent knowledge about the workspace, and knowledge about words that the user wrote. foldlog
joins the knowledge into one text, with sentences of its own between the pieces.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog.eventstore import Content
from foldlog.eventstore.events import Forgotten
from foldlog.formats.record import Fields, dict_or_empty, text_or_empty, within

_USER_RAN = "User executed the command:\n"
_USER_READ = "User requested to read file: "
_USER_GOT = "\nObserved result of command executed by user:\n"
_ENDS = {
    "error": ("", "\n[Error occurred in processing last action]"),
    "user_rejected": ("OBSERVATION:\n", "\n[Last action has been rejected by the user]"),
}

_FACTS = (
    ("repo_name", "Repository"),
    ("repo_directory", "Cloned to"),
    ("repo_branch", "Branch"),
    ("working_dir", "Working directory"),
    ("date", "Date"),
)
_INSTRUCTIONS = (
    ("repo_instructions", "Instructions of the repository"),
    ("additional_agent_instructions", "Instructions of the runtime"),
    ("conversation_instructions", "Instructions for this conversation"),
)


class WrittenCall(NamedTuple):
    """A call as the model wrote it. ``text`` is the text of the model's message that contains the
    call. Of several parallel calls, only the first has the text.
    """

    tool: str
    arguments: str
    text: Content


def call_of(metadata: Any) -> WrittenCall | None:
    """Return the call that the metadata of a record names, or None if the model's response in the
    metadata does not contain this call.
    """
    fields = dict_or_empty(metadata)
    choices = within(fields, "model_response", "choices")
    message = dict_or_empty(choices[0] if type(choices) is list and choices else None, "message")
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if type(calls) is list else ()):
        function = dict_or_empty(call, "function")
        tool = function.get("name")
        arguments = function.get("arguments")
        is_asked_for = dict_or_empty(call).get("id") == fields.get("tool_call_id")
        if is_asked_for and type(tool) is str and type(arguments) is str:
            text = "" if index else _content_of(message.get("content"))
            return WrittenCall(tool, arguments, text)
    return None


def _content_of(content: Any) -> Content:
    """Return the content of a model's message: its parts, or its text."""
    if type(content) is list and all(type(part) is dict for part in content):
        return tuple(content)
    return content if type(content) is str and content.strip() else ""


def final_words(args: Fields, metadata: Any) -> str:
    """Return the thought and the text of the agent's last action. The model gets the thought and
    the text together with the call.
    """
    thought = text_or_empty(args, "thought")
    final = text_or_empty(args, "final_thought")
    call = call_of(metadata)
    if call is None:
        return final or thought
    call_text = call.text if isinstance(call.text, str) else ""
    words = "\n".join(dict.fromkeys(text for text in (thought, call_text) if text.strip()))
    return words or final or thought


def text_of_user_action(name: str, args: Fields) -> str:
    """Return the text that the model gets about an action of the user. Return an empty text for an
    action of V0 itself.
    """
    command = args.get("command")
    path = args.get("path")
    if name == "run" and type(command) is str:
        return f"{_USER_RAN}{command}"
    if name == "read" and type(path) is str:
        return f"{_USER_READ}{path}"
    return ""


def text_of_observation(name: str, content: str, extras: Fields, *, by_user: bool) -> str:
    """Return the text that the model gets about an observation. For a command, the text also says
    where the command ran and how the command ended.
    """
    before, after = _ENDS.get(name, ("", ""))
    metadata = extras.get("metadata")
    if name == "run" and type(metadata) is dict:
        before = text_or_empty(metadata, "prefix")
        after = text_or_empty(metadata, "suffix") + text_of_ending(metadata)
    if name == "run" and by_user:
        before = f"{_USER_GOT}{before}"
    return f"{before}{content}{after}"


def text_of_ending(metadata: Fields) -> str:
    """Return the text about where a command ran, and how it ended."""
    lines = []
    for key, label in (
        ("working_dir", "Current working directory"),
        ("py_interpreter_path", "Python interpreter"),
    ):
        if text_or_empty(metadata.get(key)):
            lines.append(f"\n[{label}: {metadata[key]}]")
    exit_code = metadata.get("exit_code", -1)
    if type(exit_code) is int and exit_code != -1:
        lines.append(f"\n[Command finished with exit code {exit_code}]")
    return "".join(lines)


class Recollection:
    """The knowledge that V0 recalled in one history. The model gets a piece of knowledge only once,
    unless the piece was forgotten or has no name.
    """

    def __init__(self) -> None:
        self._source_ids: Fields = {}
        """Maps the name of a piece of knowledge to the id of its record."""

    def tell(self, extras: Fields, source_id: Any) -> tuple[str, Fields]:
        """Return what the model gets of recalled knowledge, and the extras without this text.
        ``source_id`` is the id of the record.
        """
        lines = list[str]()
        extras = dict(extras)
        if extras.get("recall_type") == "workspace_context":
            _tell_workspace(extras, lines)
        knowledge = extras.get("microagent_knowledge")
        for index, piece in enumerate(knowledge if type(knowledge) is list else ()):
            fields = dict_or_empty(piece)
            name = text_or_empty(fields, "name")
            content = text_or_empty(fields, "content")
            trigger = text_or_empty(fields, "trigger")
            if content and name not in self._source_ids:
                if name:
                    self._source_ids[name] = source_id
                cause = f", called for by the word {trigger!r}" if trigger else ""
                lines.append(f"Knowledge about {name}{cause}:")
                lines.append(content)
                shortened = list(extras["microagent_knowledge"])
                shortened[index] = {**piece, "content": None}
                extras["microagent_knowledge"] = shortened
        return "\n".join(lines), extras

    def forget(self, forgotten: Forgotten) -> None:
        """Forget the knowledge in ``forgotten`` records, so that the model gets the knowledge
        again.
        """
        for name, source_id in list(self._source_ids.items()):
            if type(source_id) is not int:
                continue  # V0 forgets by numbers, so it never forgets a record with a text as id
            if any(first <= source_id <= last for first, last in forgotten.intervals):
                del self._source_ids[name]


def _tell_workspace(extras: Fields, lines: list[str]) -> None:
    """Add lines about the workspace, and take their texts out of the extras."""
    for key, label in _FACTS:
        if text_or_empty(extras.get(key)):
            lines.append(f"{label}: {extras[key]}")
    for key, label in (
        ("runtime_hosts", "Host and port"),
        ("custom_secrets_descriptions", "Secret"),
    ):
        for name, about in dict_or_empty(extras.get(key)).items():
            lines.append(f"{label}: {name} {about}".rstrip())
    for key, label in _INSTRUCTIONS:
        if text_or_empty(extras.get(key)):
            lines.append(f"{label}:")
            lines.append(extras[key])
            extras[key] = None
