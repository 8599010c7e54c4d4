"""Each database finds the sub-agents of a task, and adds up and erases the task."""

from foldlog import Action, Histories, Message
from foldlog.eventstore import Store


def answer(reply):
    """Return the answer of a model, which has cost 0.5."""
    meta = {"model": "m", "cost": 0.5, "reply": reply}
    return Message(source="agent", content="ok", meta=meta)


def test_a_task_is_added_up_and_erased(recorder):
    histories = Histories(Store(recorder))
    task = histories["task"]
    agents = [task]
    for call_id in "123":
        task.append(Action(tool="agent", call_id=call_id))
        agents.append(task.begin_child(task.open_calls()[-1]))
    for agent in agents:
        agent.append(answer(f"reply to {agent.id}"))
    # A reply that two agents have was paid once.
    agents[2].append(answer(f"reply to {agents[1].id}"))
    stats = task.stats(with_children=True)
    assert (stats.conversations, stats.spent.cost) == (4, 4 * 0.5)
    histories.erase("task", reason="asked to", with_children=True)
    assert not any(agent.id in histories for agent in agents)
