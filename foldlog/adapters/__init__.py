"""Adapters for agent SDKs. An adapter stores the conversations of an SDK in foldlog.

    agent_framework.py FoldlogHistoryProvider, a HistoryProvider of Microsoft's Agent Framework
    claude_agent.py    FoldlogSessionStore, a SessionStore of the Claude Agent SDK
    google_adk.py      FoldlogSessionService, a session service of Google's Agent Development Kit
    langchain.py       FoldlogChatMessageHistory, a BaseChatMessageHistory of LangChain
    langgraph.py       FoldlogSaver, a BaseCheckpointSaver of LangGraph, and its hook that runs
                       before a model call
    llama_index.py     FoldlogChatStore, a BaseChatStore of LlamaIndex
    openai_agents.py   FoldlogSession, a Session of the OpenAI Agents SDK, and its input filter
    openhands.py       FoldlogFileStore, a FileStore of the OpenHands SDK, and FoldlogCondenser for
                       its agents
    pydantic_ai.py     FoldlogConversationStore, a ConversationStore of pydantic-ai, and
                       FoldlogSteps, a capability
    strands.py         FoldlogSessionRepository, a SessionRepository of Strands Agents

``_shared.py`` has the code that all adapters use. ``_streams.py`` stores replies while models write
them. ``_records/`` has the formats in which SDKs write messages. ``_langgraph/`` stores
checkpoints, ``langgraph_deltas.py`` stores lists as differences, and ``_linked_entries.py`` stores
trees of messages. The extras of foldlog install the SDKs.
"""
