"""The formats in which SDKs write their messages: a ``Format`` for each adapter that stores these
messages unchanged. Files with such records can be imported without the adapter, so no SDK is
imported here.

agent_framework.py google_adk.py langchain.py llama_index.py pydantic_ai.py strands.py parts.py:
code for formats whose records are made of parts; openhands_files.py: events of OpenHands as files
of its SDK
"""
