"""Make the text of the knowledge that V0 recalled for its agent: about the workspace, or for a word of the user.

A record holds pieces of knowledge, and V0 sends them to its model as one text. The text here has the same content in
other words.
"""

from __future__ import annotations

from typing import Any

from foldlog.eventstore import Forgotten

Spans = dict[str, list[int]]
"""For each long text in ``extras``, by its path: the characters of the told text that hold it, as start and end."""

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

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}

    def tell(self, extras: dict[str, Any], source_id: Any) -> tuple[str, Spans]:
        """Return the text of one observation, and the spans of the long texts of ``extras`` in it."""
        text = _Text()
        if extras.get("recall_type") == "workspace_context":
            _tell_workspace(extras, text)
        knowledge = extras.get("microagent_knowledge")
        for place, piece in enumerate(knowledge if type(knowledge) is list else ()):
            name, content, trigger = (_text(piece, key) for key in ("name", "content", "trigger"))
            if content and name not in self._told:
                self._told[name] = source_id
                text.add(f"Knowledge about {name}" + (f", called for by the word {trigger!r}:" if trigger else ":"))
                text.quote(f"microagent_knowledge/{place}/content", content)
        return text.said, text.spans

    def forget(self, forgotten: Forgotten) -> None:
        """Mark the knowledge in these records as forgotten, so that it is told again."""
        for name, source_id in list(self._told.items()):
            if type(source_id) is int and any(first <= source_id <= last for first, last in forgotten.intervals):
                del self._told[name]


def _tell_workspace(extras: dict[str, Any], text: _Text) -> None:
    for key, label in _FACTS:
        if _text(extras, key):
            text.add(f"{label}: {extras[key]}")
    for key, label in (("runtime_hosts", "Host and port"), ("custom_secrets_descriptions", "Secret")):
        entries = extras.get(key)
        for name, about in entries.items() if type(entries) is dict else ():
            text.add(f"{label}: {name} {about}".rstrip())
    for key, label in _INSTRUCTIONS:
        if _text(extras, key):
            text.add(f"{label}:")
            text.quote(key, extras[key])


class _Text:
    """A text that is made line by line, and remembers the spans of its quotes."""

    def __init__(self) -> None:
        self.said = ""
        self.spans: Spans = {}

    def add(self, line: str) -> None:
        self.said += f"\n{line}" if self.said else line

    def quote(self, path: str, text: str) -> None:
        start = len(self.said) + 1
        self.add(text)
        self.spans[path] = [start, start + len(text)]


def _text(owner: Any, key: str) -> str:
    value = owner.get(key) if type(owner) is dict else None
    return value if type(value) is str else ""


def without_texts(extras: dict[str, Any], spans: Spans) -> dict[str, Any]:
    """Return ``extras`` without the texts that the told text holds."""
    return _mapped(extras, dict.fromkeys(spans))


def with_texts(extras: dict[str, Any], spans: Spans, said: str) -> dict[str, Any]:
    """Return ``extras`` with the texts at ``spans`` of the told text."""
    return _mapped(extras, {path: said[start:end] for path, (start, end) in spans.items()})


def _mapped(extras: dict[str, Any], texts: dict[str, Any]) -> dict[str, Any]:
    """Return ``extras`` with other texts at these paths. Pieces of knowledge are copied; all other values are
    shared.
    """
    mapped = dict(extras)
    for path, text in texts.items():
        key, _, rest = path.partition("/")
        if not rest:
            mapped[key] = text
            continue
        place = int(rest.partition("/")[0])
        pieces = mapped[key] = list(mapped[key])
        pieces[place] = {**pieces[place], "content": text}
    return mapped
