"""A conversation of the OpenHands SDK, condensed by foldlog; nothing is lost. Run it again to
continue the conversation.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[openhands]'
OPENAI_API_KEY=... python examples/openhands_foldlog.py "What did we speak of?"
"""

from __future__ import annotations

import os
import sys
import uuid

from openhands.sdk import LLM, Agent
from openhands.sdk.conversation.impl.local_conversation import LocalConversation

from foldlog.adapters.openhands import FoldlogCondenser, FoldlogFileStore

URL = os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")
ID = uuid.uuid5(uuid.NAMESPACE_URL, "foldlog/example")


def main(prompt: str, llm: LLM | None = None) -> None:
    """Ask, then print the size of the View."""
    llm = llm or LLM(model="openai/gpt-4o", api_key=os.environ["OPENAI_API_KEY"])
    agent = Agent(llm=llm, condenser=FoldlogCondenser(config={"type": "digest", "max_size": 60}))
    with FoldlogFileStore(URL, ID) as store:
        conversation = LocalConversation(
            agent, os.getcwd(), conversation_id=ID, file_store=store, visualizer=None
        )
        conversation.send_message(prompt)
        conversation.run()
        conversation.close()
        print(f"{len(store.history.view())} events are shown to the model")


if __name__ == "__main__":
    main(sys.argv[1])
