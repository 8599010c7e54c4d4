"""A hundred changes of an agent, each beside a recorded run of the unchanged agent: sixty change what
a model may answer, and forty do not. A replay of the run fails for each of the sixty, and for none of
the forty.
"""

import json
from copy import deepcopy
from itertools import product
from random import Random

import pytest

import foldlog as api
from foldlog._testing.run_file import run_of
from foldlog.testing import RunDiffers, replay

SYSTEM = "You keep the lighthouse. Answer in one sentence."
CONDENSER = {"type": "digest", "max_size": 14, "keep_first": 2}
CITIES = ("Riga", "Turku", "Gdansk")


def tool(name, description, **properties):
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TEXT = {"type": "string", "description": "what to look at"}
NUMBER = {"type": "integer", "minimum": 0}
TOOLS = [
    tool("tide", "Read the tide of a harbor.", harbor=TEXT),
    tool("wind", "Read the wind of a harbor.", harbor=TEXT, hours=NUMBER),
    tool("lamp", "Set the lamp.", power=NUMBER),
]


class Agent:
    """An agent of three requests. A function ``change`` stands for the lines that somebody edits."""

    def __init__(self):
        self.system = SYSTEM
        self.requests = [
            {"role": "user", "content": f"Is it safe to leave {city} at 6 o'clock?"}
            for city in CITIES
        ]
        self.tools = deepcopy(TOOLS)
        self.parameters = {"model": "m-1", "temperature": 0.3, "max_tokens": 300}
        self.condenser = dict(CONDENSER)
        self.results = {"tide": "tide at {harbor}: 3 m", "wind": "wind {hours}", "lamp": "on"}
        self.order = list
        self.edit = lambda messages: messages
        self.turns = len(CITIES)

    def open(self):
        return api.open("memory:", condenser=self.condenser)

    def run(self, history, model):
        if self.system is not None:
            history.append({"role": "system", "content": self.system})
        for request in self.requests[: self.turns]:
            history.append(request)
            while True:
                sent = history.prepare().request("openai", tools=self.tools, **self.parameters)
                messages = self.edit([deepcopy(message) for message in sent.messages])
                reply = model(messages, tools=sent.tools, **self.parameters)
                history.append_reply(reply, request=sent)
                calls = self.order(history.open_calls())
                if not calls:
                    break
                for call in calls:
                    text = self.results[call.tool].format(**call.arguments)
                    history.append_tool_result(call, text)


def call(number, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call-{number}", "type": "function", "function": function}


def replies():
    """Two parallel calls, one call and an answer for each request."""
    numbers = iter(range(100))
    for city in CITIES:
        pair = [
            call(next(numbers), "tide", harbor=city),
            call(next(numbers), "wind", harbor=city, hours=6),
        ]
        yield {"role": "assistant", "content": f"I look at {city}.", "tool_calls": pair}
        lamp = [call(next(numbers), "lamp", power=7)]
        yield {"role": "assistant", "content": None, "tool_calls": lamp}
        yield {"role": "assistant", "content": f"{city} is safe."}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The file of a run of the unchanged agent."""
    path = tmp_path_factory.mktemp("runs") / "keeper.jsonl"
    answers = replies()
    agent = Agent()
    with agent.open() as histories:
        history = histories["keeper"]
        agent.run(history, lambda messages, **beside: next(answers))
        assert history.view().summary_event is not None
        run_of(history).write(path)
    return path


# --- changes that matter


def edit_message(kind):
    def change(agent, random):
        at = random.randrange(9)
        calls = iter(range(100))

        def edit(messages):
            return kind(messages, random) if next(calls) == at else messages

        agent.edit = edit

    return change


def word_added(messages, random):
    message = random.choice([message for message in messages if message.get("content")])
    words = message["content"].split(" ")
    words.insert(random.randrange(len(words) + 1), "really")
    message["content"] = " ".join(words)
    return messages


def user_named(messages, random):
    next(message for message in messages if message["role"] == "user")["name"] = "bob"
    return messages


def message_added(messages, random):
    return [*messages, {"role": "user", "content": random.choice(("Hurry.", "{", "And now?"))}]


def message_dropped(messages, random):
    places = [at for at, message in enumerate(messages) if message["role"] != "system"]
    del messages[random.choice(places)]
    return messages


def argument_changed(messages, random):
    for message in messages:
        for each in message.get("tool_calls", ()):
            each["function"]["arguments"] = json.dumps({"harbor": "Oslo"})
    if not any("tool_calls" in message for message in messages):
        return word_added(messages, random)
    return messages


def parameter(name, value):
    def change(agent, random):
        agent.parameters[name] = value

    return change


def parameter_gone(name):
    def change(agent, random):
        del agent.parameters[name]

    return change


def in_tool(place, edit):
    def change(agent, random):
        edit(agent.tools[place]["function"])

    return change


def set_attribute(name, value):
    def change(agent, random):
        setattr(agent, name, value)

    return change


def result_changed(name):
    def change(agent, random):
        agent.results[name] += random.choice((".", " m", " 4"))

    return change


def request_changed(place):
    def change(agent, random):
        agent.requests[place]["content"] += random.choice((" Thanks.", "?", " And back?"))

    return change


def results_exchanged(agent, random):
    agent.results["tide"] = "wind 6"
    agent.results["wind"] = "tide at {harbor}: 3 m"


HARMFUL = [
    ("a word of the system prompt", set_attribute("system", SYSTEM + " Be brief.")),
    ("no system prompt", set_attribute("system", None)),
    ("results exchanged", results_exchanged),
    ("a turn fewer", set_attribute("turns", 2)),
    *((f"request {n}", request_changed(n)) for n in range(3)),
    *((f"result of {name}", result_changed(name)) for name in ("tide", "wind", "lamp")),
    *(
        (f"{name}={value!r}", parameter(name, value))
        for name, value in (
            ("temperature", 0.31),
            ("temperature", 1),
            ("model", "m-2"),
            ("max_tokens", 299),
            ("top_p", 0.9),
            ("seed", 7),
            ("stop", ["\n"]),
            ("tool_choice", "required"),
            ("tool_choice", "none"),
            ("response_format", {"type": "json_object"}),
            ("reasoning_effort", "low"),
            ("parallel_tool_calls", False),
            ("frequency_penalty", 0.5),
            ("logit_bias", {"50256": -100}),
            ("n", 2),
            ("presence_penalty", -0.5),
            ("max_completion_tokens", 300),
            ("verbosity", "low"),
            ("thinking", {"type": "enabled", "budget_tokens": 1_024}),
            ("top_k", 40),
            ("logprobs", True),
        )
    ),
    *((f"no {name}", parameter_gone(name)) for name in ("temperature", "max_tokens", "model")),
    ("description of a tool", in_tool(0, lambda f: f.update(description="Read the tides."))),
    ("name of a tool", in_tool(2, lambda f: f.update(name="light"))),
    ("a strict tool", in_tool(1, lambda f: f.update(strict=True))),
    ("a type", in_tool(2, lambda f: f["parameters"]["properties"].update(power=TEXT))),
    ("a limit", in_tool(1, lambda f: f["parameters"]["properties"]["hours"].update(minimum=1))),
    ("fewer required", in_tool(1, lambda f: f["parameters"].update(required=["harbor"]))),
    ("an enum", in_tool(0, lambda f: f["parameters"]["properties"]["harbor"].update(enum=["a"]))),
    ("a tool more", lambda agent, random: agent.tools.append(tool("fog", "Read the fog."))),
    ("a tool fewer", lambda agent, random: agent.tools.pop()),
    ("tools in another order", lambda agent, random: agent.tools.reverse()),
    ("no tools", set_attribute("tools", [])),
    *(
        (f"condenser {change}", set_attribute("condenser", CONDENSER | change))
        for change in (
            {"max_size": 12},
            {"max_size": 40},
            {"keep_first": 1},
            {"keep_first": 3},
        )
    ),
    ("another condenser", set_attribute("condenser", "noop")),
    *(
        (f"{kind.__name__} {n}", edit_message(kind))
        for n, kind in product(
            range(2), (word_added, message_added, message_dropped, argument_changed, user_named)
        )
    ),
]

# --- changes that do not matter


def shuffled(agent, random):
    agent.order = lambda calls: random.sample([*calls], len(calls))


def keys_reversed(value):
    if isinstance(value, dict):
        return {name: keys_reversed(value[name]) for name in reversed(value)}
    return value


def with_keys_reversed(agent, random):
    agent.tools = [keys_reversed(tool) for tool in agent.tools]


def arguments_reordered(messages, random):
    for message in messages:
        for each in message.get("tool_calls", ()):
            arguments = json.loads(each["function"]["arguments"])
            text = json.dumps(keys_reversed(arguments), indent=random.choice((None, 1)))
            each["function"]["arguments"] = text
    return messages


def content_in_parts(messages, random):
    for message in messages:
        if isinstance(message.get("content"), str) and message["role"] == "user":
            message["content"] = [{"type": "text", "text": message["content"]}]
    return messages


def cache_marks(messages, random):
    messages = content_in_parts(messages, random)
    for message in messages:
        if isinstance(message["content"], list):
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return messages


def everywhere(kind):
    def change(agent, random):
        agent.edit = lambda messages: kind(messages, random)

    return change


def titled(agent, random):
    for each in agent.tools:
        each["function"]["parameters"]["title"] = "Arguments"
        each["function"]["parameters"]["additionalProperties"] = False
        each["function"]["parameters"]["$schema"] = "https://json-schema.org/draft/2020-12/schema"


HARMLESS = [
    *((f"results in another order {n}", shuffled) for n in range(14)),
    ("keys of tools in another order", with_keys_reversed),
    ("what an SDK adds to a tool", titled),
    *((f"arguments written otherwise {n}", everywhere(arguments_reordered)) for n in range(4)),
    ("content in parts", everywhere(content_in_parts)),
    ("marks of a cache", everywhere(cache_marks)),
    *(
        (f"{name}={value!r}", parameter(name, value))
        for name, value in (
            ("user", "ann"),
            ("metadata", {"run": "7"}),
            ("stream", True),
            ("stream_options", {"include_usage": True}),
            ("store", False),
            ("timeout", 30),
            ("truncation", "disabled"),
            ("prompt_cache_key", "keeper"),
            ("service_tier", "flex"),
            ("safety_identifier", "a"),
            ("n", 1),
            ("parallel_tool_calls", True),
            ("tool_choice", "auto"),
            ("top_p", None),
            ("seed", None),
        )
    ),
    (
        "the condenser keeps its limit",
        set_attribute("condenser", CONDENSER | {"max_length": 20_000}),
    ),
    ("nothing", lambda agent, random: None),
    (
        "parameters in another order",
        lambda agent, random: setattr(
            agent, "parameters", dict(reversed(agent.parameters.items()))
        ),
    ),
]


def play(recorded, name, change):
    agent = Agent()
    change(agent, Random(name))
    with replay(recorded) as model, agent.open() as histories:
        agent.run(histories["keeper"], model)


def test_there_are_a_hundred_changes():
    assert (len(HARMFUL), len(HARMLESS)) == (60, 40)


@pytest.mark.parametrize("name, change", HARMFUL, ids=[name for name, _ in HARMFUL])
def test_a_change_that_matters_is_named(name, change, recorded):
    with pytest.raises(RunDiffers):
        play(recorded, name, change)


@pytest.mark.parametrize("name, change", HARMLESS, ids=[name for name, _ in HARMLESS])
def test_a_change_that_does_not_matter_is_no_alarm(name, change, recorded):
    play(recorded, name, change)
