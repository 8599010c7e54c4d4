"""Histories of other agents. ``foldlog.formats`` is the public interface.

registry.py         lists all formats; a format is a file or a folder in this folder
format.py           defines the fields of a ``Format``
conversion.py       turns records into events and back
record_events.py    collects the events of one record
record.py           reads fields, ids and times of records
calls.py            finds the call that a result answers
messages.py         turns messages of providers into events, also for live replies
blocks.py           converts contents between Anthropic's blocks and events
event_fields.py     reads fields of events
skeleton.py         selects the fields of a record for lists, figures and titles; a redaction does
                    not delete these fields
user_requests.py    finds the request of a user
decoded.py          counts events, for formats without a skeleton
usage.py            finds calls of models in events
imported_calls.py   finds the calls of models in one history
summed_calls.py     adds up calls of models
hash_set.py         recognizes calls that were counted before
encoding.py         turns events into records
export_notes.py     counts the events and fields that an export leaves out
json_text.py        parses JSON text
files/              finds and reads the records at a path
detection.py        detects the format of a history
members.py          follows the content of a View while records are read or written
repeats.py          finds records that a source repeats
unread.py           finds texts of a record that no event contains
reply_encoders.py   writes the calls of a reply together, then the results of the calls
places.py           records which events came from one record
forking.py          finds where a fork of a branch begins, and which records the fork lacks
prompt_changes.py   decides which event stores a change of a prompt
replacing.py        finds events that a source repeats

claude_code/ codex/ openhands_v0/ openhands_v1/ otlp_genai/ aider.py anthropic_messages.py atif.py
chatgpt.py claude_ai.py copilot_cli.py cursor.py gemini_cli.py inspect_eval.py openai_chat.py
openai_responses.py opencode.py pi.py qwen_code.py and swe_agent.py define one format per file or
folder. foldlog/adapters/_records/ holds the formats of agent SDKs, next to their adapters.

trees.py            reads the chats that web sites export
opencode_files.py   finds the sessions of OpenCode
"""
