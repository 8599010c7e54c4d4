"""What the steps draw: names of conversations, and what is appended to them."""

import foldlog.eventstore as es
from tests.simulation import model
from tests.simulation.world import NAMES, WORDS


class Draws:
    """Draws for the steps of one world, from the generator of the present step."""

    def __init__(self, world):
        self.world = world
        self.nested = False
        """Whether the present step runs within the step of another process."""
        self.focus = None
        """The conversation that the outer step is about."""

    def draw_name(self, rng, site, *, living=True, forked=False):
        """Draw a conversation; within another step often the one that it is about. ``forked``: half
        of the time one that has forks.
        """
        names = list(site.model.living)
        if forked and rng.random() < 0.5:
            conversations = site.model.living.values()
            names = [fork.parent.name for fork in conversations if fork.parent]
        if self.nested and self.focus is not None and rng.random() < 0.6:
            return self.focus
        name = rng.choice(names) if names and (living or rng.random() < 0.7) else rng.choice(NAMES)
        if not self.nested:
            self.focus = name
        return name

    def draw_growing(self, rng, site):
        """Draw a conversation that may become longer."""
        conversation = site.model.living.get(self.draw_name(rng, site))
        if conversation is None or self.nested or conversation.version <= self.world.length_max:
            return conversation
        short = [
            other for other in site.model.living.values() if other.version <= self.world.length_max
        ]
        if not short:
            self.world.length_max += 6
            return conversation
        conversation = rng.choice(short)
        self.focus = conversation.name
        return conversation

    def draw_writer(self, rng, process, name):
        """Draw a history to append with: one that this process has held for long, or a new one.
        Return with it the tag of the conversation that it met first; None if it met none.
        """
        if rng.random() < 0.6:
            if name not in process.writers:
                process.writers[name] = (process.histories[name], None)
            return process.writers[name]
        return process.histories[name], None

    def text(self, rng):
        return f"{self.world.new_word()} {rng.choice(WORDS)}"

    def unique(self, what):
        return f"{what}-{self.world.new_word()[4:]}"

    def draw_turn(self, rng, conversation, version):
        """Draw what the loop of an agent records next, at this version."""
        draw = rng.random()
        if conversation is not None and draw < 0.5:
            open_calls = conversation.open_calls(conversation.view())
            if open_calls:
                return self._draw_answers(rng, conversation, open_calls)
        if draw < 0.6:
            return self._draw_response(rng, version)
        if draw < 0.68:
            return [model.annotation("note", {"text": self.text(rng)})]
        if draw < 0.72:
            return [model.observation(self.text(rng), "nobody", "tool")]
        content = self.text(rng)
        if rng.random() < 0.1:
            content = (content, rng.choice((b"\0\xff", b"picture" * 50)))
        source = rng.choice(("user", "user", "agent", "environment"))
        meta = rng.choice(({}, {"n": 1}, {"model": "m", "usage": {}, "cost": 0.5}))
        return [model.message(content, source, meta=meta)]

    def _draw_answers(self, rng, conversation, open_calls):
        """Draw answers to some of the open calls."""
        ids = rng.sample(open_calls, rng.randrange(1, len(open_calls) + 1))
        return [
            model.observation(
                self.text(rng),
                action["call_id"],
                action["tool"],
                cause=action["id"],
                is_error=rng.random() < 0.1,
            )
            for action in [conversation.events[action_id] for action_id in ids]
        ]

    def _draw_response(self, rng, version):
        """Draw a response of a model: thinking, words, calls, and perhaps all their answers."""
        response_id = self.unique("response")
        thinking = rng.choice(("", "", "hm"))
        events = [model.reasoning("hm") for _ in range(rng.choice((0, 0, 1, 2)))]
        if rng.random() < 0.3:
            events.append(model.message(self.text(rng), "agent", meta={"reply": response_id}))
        first = len(events)
        for number in range(rng.choice((1, 1, 2, 3))):
            call_id = rng.choice((self.unique("call"), "again")) if rng.random() < 0.9 else None
            event = model.action("tool", {"q": self.text(rng)}, call_id, response_id)
            if number == 0:
                event["thinking"] = thinking
                if rng.random() < 0.3:
                    event["thought"] = self.text(rng)
            events.append(event)
        if rng.random() < 0.5:
            for number, action in enumerate(events[first:], version + first):
                text = self.text(rng)
                events.append(model.observation(text, action["call_id"], "tool", cause=number))
        return events

    def draw_documents(self, rng, conversation):
        """Draw new values of documents: other values, or the present ones with a part changed."""
        present = {} if conversation is None else conversation.documents()
        values = {}
        for name in rng.sample(("state", "title", "log", "\ud83d"), rng.randrange(1, 3)):
            if name in present and rng.random() < 0.5:
                values[name] = _edited(present[name], rng)
            elif name == "log" and rng.random() < 0.7:
                values[name] = list(range(rng.randrange(1, 40)))
            else:
                values[name] = rng.choice(_VALUES)
        return values


_SCALARS = (
    7,
    True,
    None,
    1.5,
    -0.25,
    2**53 + 1,
    "",
    "ttt",
    "\ud800",
    "\u00e9\u2028\0",
    b"",
    b"\0\xff",
)
_VALUES = (
    *_SCALARS,
    float("inf"),
    [],
    {},
    {"a": [1, 2, {"b": None}], "n": 3},
    {"a": [1, 2, {"b": b"b"}], "": {"": [[]]}},
    ["t" * 300] * 3,
    model.DELETED,
)
ATTRIBUTES = {
    "app": ("x", "y", "", "\u00e9\ud800", None),
    "tags": (["t"], ["t", "u"], [], ["u", 1], None),
    "n": (1, 2, True, -(2**70), 0.5, {"deep": 1}, None),
}


def _edited(value, rng):
    match value:
        case list() if value:
            place = rng.randrange(len(value))
            instead = rng.choice(
                ([], [rng.randrange(9)], [_edited(value[place], rng)], [value[place], "x"])
            )
            return [*value[:place], *instead, *value[place + 1 :]]
        case dict() if value:
            name = rng.choice(sorted(value))
            rest = {key: member for key, member in value.items() if key != name}
            return rng.choice(
                (rest, value | {name: _edited(value[name], rng)}, value | {"more": 1})
            )
        case str() | bytes():
            return value + value[:1]
    return rng.choice((0, 1, True, [value], {"is": value}))


def to_documents(values):
    """Return values of documents as the product takes them."""
    return {name: es.DELETED if value == model.DELETED else value for name, value in values.items()}
