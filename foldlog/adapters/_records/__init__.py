"""The formats in which SDKs write their messages. If an adapter stores an SDK's messages unchanged,
this package has a ``Format`` for them. Files with an SDK's messages can be imported without the
SDK, so this package imports no SDK.

    agent_framework.py  google_adk.py  langchain.py  llama_index.py  pydantic_ai.py  strands.py

    parts.py            code for formats whose records are made of parts
    openhands_files.py  events of OpenHands as files of its SDK
"""
