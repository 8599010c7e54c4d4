"""Histories of other agents. ``foldlog.formats`` is the public interface.

registry.py         the list of formats; each format is a file or a folder in this folder, with one
                    ``Format`` object
format.py           the fields of a ``Format``
conversion.py       turns records into events and back; the formats share record_events.py,
                    record.py and calls.py
messages.py         turns messages of providers into events, also for replies; blocks.py converts
                    contents, and event_fields.py reads fields of events
skeleton.py         the fields of a record that lists, figures and titles need, and that stay after
                    a redaction; user_requests.py finds the request of a user
decoded.py          counts the events of records, for formats without a skeleton
usage.py            finds calls of models in events; imported_calls.py finds the calls of one
                    history, summed_calls.py adds up calls, hash_set.py recognizes known calls
encoding.py         turns events into records; export_notes.py counts what an export leaves out
json_text.py        parses JSON text
files/              finds and reads the records at a path
detection.py        detects the format of a history
members.py          follows the content of a View while records are read or written; repeats.py
                    finds records that come again
reply_encoders.py   writes the calls of a reply together, then the results of the calls; places.py
                    records which events came from one record
forking.py          finds where a fork of a branch begins, and which records it lacks; replacing.py
                    finds events that a source contains again

claude_code/ codex/ openhands_v0/ openhands_v1/ otlp_genai/ aider.py anthropic_messages.py atif.py
chatgpt.py claude_ai.py copilot_cli.py cursor.py gemini_cli.py inspect_eval.py openai_chat.py
openai_responses.py opencode.py pi.py qwen_code.py swe_agent.py are one format each. The formats of
agent SDKs are next to their adapters, in foldlog/adapters/_records/.
trees.py            reads exports of the chats of web sites
opencode_files.py   finds the sessions of OpenCode
"""
