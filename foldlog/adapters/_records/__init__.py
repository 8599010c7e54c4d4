"""The formats in which SDKs write their messages. This package has a ``Format`` for the messages of
each SDK that an adapter stores unchanged. Files with an SDK's messages can be imported without the
SDK, so this package imports no SDK.

    agent_framework.py  google_adk.py  langchain.py  llama_index.py  pydantic_ai.py  strands.py

    parts.py            code for formats whose records are made of parts
    openhands_files.py  events of OpenHands as files of its SDK
"""
