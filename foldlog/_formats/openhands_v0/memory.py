"""Return the words that V0's agent sent to its model, if they differ from the record.

A tool's action is sent as the call that the model wrote, which is in ``tool_call_metadata``. The
model also reads the user's actions and their results, with words of V0 around them. So a model that
continues reads the same text as before.

Knowledge that V0 recalled, about the workspace or for a word of the user, is one text with the same
content in other words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog._formats.record import dict_or_empty, text_or_empty
from foldlog.eventstore import Content
from foldlog.eventstore.inside import Forgotten

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
    """A call as the model wrote it. ``said`` is the text that came with the call; parallel calls
    have it in the first one.
    """

    tool: str
    arguments: str
    said: Content


def call_of(metadata: Any) -> WrittenCall | None:
    """Return the call that ``tool_call_metadata`` names, or None if the model's response does not
    hold it.
    """
    about = dict_or_empty(metadata)
    choices = dict_or_empty(about.get("model_response")).get("choices")
    message = dict_or_empty(
        dict_or_empty(choices[0] if type(choices) is list and choices else None).get("message")
    )
    calls = message.get("tool_calls")
    for place, call in enumerate(calls if type(calls) is list else ()):
        function = dict_or_empty(dict_or_empty(call).get("function"))
        tool = function.get("name")
        arguments = function.get("arguments")
        if (
            type(tool) is str
            and type(arguments) is str
            and call.get("id") == about.get("tool_call_id")
        ):
            return WrittenCall(tool, arguments, "" if place else _said(message.get("content")))
    return None


def _said(content: Any) -> Content:
    if type(content) is list and all(type(part) is dict for part in content):
        return tuple(content)
    return content if type(content) is str and content.strip() else ""


def final_words(args: dict[str, Any], metadata: Any) -> str:
    """Return the part of its last action that the model is shown besides the call: its thought and
    its text.
    """
    thought = text_or_empty(args.get("thought"))
    final = text_or_empty(args.get("final_thought"))
    call = call_of(metadata)
    if call is None:
        return final or thought
    said = call.said if isinstance(call.said, str) else ""
    words = "\n".join(dict.fromkeys(text for text in (thought, said) if text.strip()))
    return words or final or thought


def done_by_user(name: str, args: dict[str, Any]) -> str:
    """Return what the model is told of an action of the user; empty for actions of V0 itself."""
    command = args.get("command")
    path = args.get("path")
    if name == "run" and type(command) is str:
        return f"{_USER_RAN}{command}"
    if name == "read" and type(path) is str:
        return f"{_USER_READ}{path}"
    return ""


def observed(name: str, content: str, extras: dict[str, Any], *, by_user: bool) -> str:
    """Return what the model is told of an observation; for a command also where it ran and how it
    ended.
    """
    before, after = _ENDS.get(name, ("", ""))
    metadata = extras.get("metadata")
    if name == "run" and type(metadata) is dict:
        before = text_or_empty(metadata.get("prefix"))
        after = text_or_empty(metadata.get("suffix")) + ending_of(metadata)
    if name == "run" and by_user:
        before = f"{_USER_GOT}{before}"
    return f"{before}{content}{after}"


def ending_of(metadata: dict[str, Any]) -> str:
    """Return what the model is told of where a command ran and how it ended."""
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
    """The knowledge that was recalled in one history. Each piece is told once, and again after it
    is forgotten.
    """

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}
        """The ids of the records that told each piece."""

    def tell(self, extras: dict[str, Any], source_id: Any) -> tuple[str, dict[str, Any]]:
        """Return the text of one observation, and ``extras`` without the long texts in it."""
        lines = list[str]()
        extras = dict(extras)
        if extras.get("recall_type") == "workspace_context":
            _tell_workspace(extras, lines)
        knowledge = extras.get("microagent_knowledge")
        for place, piece in enumerate(knowledge if type(knowledge) is list else ()):
            name, content, trigger = (
                text_or_empty(dict_or_empty(piece).get(key))
                for key in ("name", "content", "trigger")
            )
            if content and name not in self._told:
                self._told[name] = source_id
                lines.append(
                    f"Knowledge about {name}"
                    + (f", called for by the word {trigger!r}:" if trigger else ":")
                )
                lines.append(content)
                extras["microagent_knowledge"] = pieces = list(extras["microagent_knowledge"])
                pieces[place] = {**piece, "content": None}
        return "\n".join(lines), extras

    def forget(self, forgotten: Forgotten) -> None:
        """Mark the knowledge in these records as forgotten, so that it is told again."""
        for name, source_id in list(self._told.items()):
            if type(source_id) is int and any(
                first <= source_id <= last for first, last in forgotten.intervals
            ):
                del self._told[name]


def _tell_workspace(extras: dict[str, Any], lines: list[str]) -> None:
    """Add what ``extras`` tells of the workspace to ``lines``, and take the long texts out of
    it.
    """
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
