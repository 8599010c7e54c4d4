"""Make the text of the knowledge that V0 recalled for its agent: about the workspace, or for a word of the user.

A record holds pieces of knowledge, and V0 sends them to its model as one text. The text here has the same content in
other words.
"""

from __future__ import annotations

from typing import Any

from foldlog._formats.format import Past
from foldlog._formats.record import dict_or_empty, dicts_in, text_or_empty
from foldlog.eventstore import Forgotten, Observation

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


class Recollection:
    """The knowledge that was recalled in one history. Each piece is told once, and again after it is forgotten."""

    def __init__(self, past: Past | None = None) -> None:
        self._past = past
        self._later: dict[str, Any] = {}

    @property
    def _told(self) -> dict[str, Any]:
        """The ids of the records that told each piece, those before the first record by the View there."""
        past, self._past = self._past, None
        for event in () if past is None else past.view():
            pieces = event.extras.get("microagent_knowledge") if isinstance(event, Observation) else None
            for piece in dicts_in(pieces):
                if "content" in piece and piece["content"] is None and event.origin is not None:
                    self._later[str(piece.get("name"))] = event.origin.id
        return self._later

    def tell(self, extras: dict[str, Any], source_id: Any) -> tuple[str, dict[str, Any]]:
        """Return the text of one observation, and ``extras`` without the long texts in it."""
        text = _Text(extras)
        if extras.get("recall_type") == "workspace_context":
            _tell_workspace(extras, text)
        knowledge = extras.get("microagent_knowledge")
        for place, piece in enumerate(knowledge if type(knowledge) is list else ()):
            name, content, trigger = (
                text_or_empty(dict_or_empty(piece).get(key)) for key in ("name", "content", "trigger")
            )
            if content and name not in self._told:
                self._told[name] = source_id
                text.add(f"Knowledge about {name}" + (f", called for by the word {trigger!r}:" if trigger else ":"))
                text.add(content)
                text.extras["microagent_knowledge"] = pieces = list(text.extras["microagent_knowledge"])
                pieces[place] = {**piece, "content": None}
        return text.said, text.extras

    def forget(self, forgotten: Forgotten) -> None:
        """Mark the knowledge in these records as forgotten, so that it is told again."""
        for name, source_id in list(self._told.items()):
            if type(source_id) is int and any(first <= source_id <= last for first, last in forgotten.intervals):
                del self._told[name]


def _tell_workspace(extras: dict[str, Any], text: _Text) -> None:
    for key, label in _FACTS:
        if text_or_empty(extras.get(key)):
            text.add(f"{label}: {extras[key]}")
    for key, label in (("runtime_hosts", "Host and port"), ("custom_secrets_descriptions", "Secret")):
        for name, about in dict_or_empty(extras.get(key)).items():
            text.add(f"{label}: {name} {about}".rstrip())
    for key, label in _INSTRUCTIONS:
        if text_or_empty(extras.get(key)):
            text.add(f"{label}:")
            text.add(extras[key])
            text.extras[key] = None


class _Text:
    """A text that is made line by line, and the extras that it does not hold."""

    def __init__(self, extras: dict[str, Any]) -> None:
        self.said = ""
        self.extras = dict(extras)

    def add(self, line: str) -> None:
        self.said += f"\n{line}" if self.said else line
