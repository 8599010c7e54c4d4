"""An agent of the OpenHands SDK is replayed."""

import uuid

from openhands.sdk import Agent, Tool
from openhands.sdk.conversation.impl.local_conversation import LocalConversation

from foldlog.adapters.openhands import FoldlogFileStore
from tests.adapters.openhands.agents import served
from tests.adapters.recorded import check_replay

ID = uuid.UUID(int=1)
WORK = {"name": "work", "arguments": '{"what": "pay"}'}


def test_an_agent_is_replayed_without_a_model(tmp_path):
    def agent(url, histories, prompt):
        payer = Agent(llm=served(f"{url}/v1"), tools=[Tool(name="work")])
        with FoldlogFileStore(histories, ID) as store:
            conversation = LocalConversation(
                payer, str(tmp_path), conversation_id=ID, file_store=store, visualizer=None
            )
            conversation.send_message(prompt)
            conversation.run()
            conversation.close()
            return store.history.id

    check_replay(agent, tmp_path / "run.jsonl", call=WORK)
