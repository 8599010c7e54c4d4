"""Which conversation began which. A task is a conversation with its sub-agents, and their
sub-agents.

A conversation is a sub-agent if its attribute ``parent`` names the conversation that began it. An
import finds the parent in the records. A sub-agent whose parent is not in the store is a task of
its own. A fork is not a sub-agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class Trees:
    """Which conversation began which.

    ``parents``  maps the id of a sub-agent to the id of its parent
    ``keys``     maps the id of a sub-agent to its key
    ``orphans``  the conversations that name a parent which is not in the store
    """

    def __init__(
        self, sub_agents: Mapping[str, tuple[int, str]], named: Mapping[str, str] = {}
    ) -> None:
        """``sub_agents`` maps the id of a sub-agent to its key and to its parent. ``named`` maps
        the id of each conversation that names a parent to the id of this parent.
        """
        self.orphans = frozenset(named) - sub_agents.keys()
        self.keys = {child: key for child, (key, _) in sub_agents.items()}
        self.parents = {child: parent for child, (_, parent) in sub_agents.items()}
        self._children = dict[str, list[str]]()
        for child, parent in self.parents.items():
            self._children.setdefault(parent, []).append(child)
        self._left_by = dict[str, list[str]]()
        for orphan in self.orphans:
            self._left_by.setdefault(named[orphan], []).append(orphan)

    def children(self, conversation: str) -> Sequence[str]:
        return self._children.get(conversation, ())

    def below(self, conversation: str) -> Iterator[tuple[str, int]]:
        """Yield the sub-agents of a conversation with their depths, each after its parent."""
        ids_found = {conversation}  # attributes that a user set may make a circle
        stack = [(child, 1) for child in reversed(self.children(conversation))]
        while stack:
            child, depth = stack.pop()
            if child not in ids_found:
                ids_found.add(child)
                yield child, depth
                stack += [(name, depth + 1) for name in reversed(self.children(child))]

    def left_by(self, erased: str) -> Iterator[str]:
        """Yield the sub-agents below a conversation that was erased."""
        for orphan in self._left_by.get(erased, ()):
            yield orphan
            yield from (name for name, _ in self.below(orphan))

    def task_of(self, conversation: str) -> str:
        """Return the conversation at the top of the tree that contains ``conversation``. If the
        attributes ``parent`` make a circle, return a conversation of the circle.
        """
        ids_below = set[str]()
        while conversation in self.parents and conversation not in ids_below:
            ids_below.add(conversation)
            conversation = self.parents[conversation]
        return conversation


NO_TREES = Trees({})
