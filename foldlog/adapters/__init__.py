"""Stores for agent runtimes: a runtime that is given one keeps its conversations in foldlog.

    agent_framework.py FoldlogHistoryProvider, a HistoryProvider of Microsoft's Agent Framework
    claude_agent.py    FoldlogSessionStore, a SessionStore of the Claude Agent SDK
    google_adk.py      FoldlogSessionService, a session service of Google's Agent Development Kit
    langchain.py       FoldlogChatMessageHistory, a BaseChatMessageHistory of LangChain
    langgraph.py       FoldlogSaver, a BaseCheckpointSaver of LangGraph, and its hook before a
                       model's call
    llama_index.py     FoldlogChatStore, a BaseChatStore of LlamaIndex
    openai_agents.py   FoldlogSession, a Session of the OpenAI Agents SDK, and its input filter
    openhands.py       FoldlogFileStore, a FileStore of the OpenHands SDK, and FoldlogCondenser for
                       its agents
    pydantic_ai.py     FoldlogConversationStore, a ConversationStore of pydantic-ai, and
                       FoldlogSteps, a capability
    strands.py         FoldlogSessionRepository, a SessionRepository of Strands Agents

Each of these files is one adapter. ``_shared.py`` is what they do with a store, whatever the
runtime; ``_records/`` has the forms in which SDKs write messages, ``_langgraph/`` keeps
checkpoints, ``langgraph_deltas.py`` lists stored as differences, ``_linked.py`` trees of messages.
Extras of foldlog install the SDKs.
"""
