"""Each database finds the sub-agents of a task, and adds up and erases the task."""

from foldlog import Action, Histories, Message
from foldlog.eventstore import Store


def test_a_task_is_added_up_and_erased(recorder):
    histories = Histories(Store(recorder))
    task = histories["task"]
    agents = [task]
    for call_id in "123":
        task.append(Action(tool="agent", call_id=call_id))
        agents.append(task.begin_child(task.open_calls()[-1]))
    for agent in agents:
        meta = {"model": "m", "cost": 0.5, "reply": "the same" if agent is agents[1] else agent.id}
        agent.append(Message(source="agent", content="ok", meta=meta))
    agents[2].append(
        Message(source="agent", content="ok", meta={"model": "m", "cost": 0.5, "reply": "the same"})
    )
    stats = task.stats(with_children=True)
    assert (stats.conversations, stats.spent.cost) == (4, 2.0)
    histories.erase("task", reason="asked to", with_children=True)
    assert not any(agent.id in histories for agent in agents)
