"""Describe events in words for people, and as JSON for programs.

gist         describes an event in one line
reasons      describes why a condensation forgot events
dropped      describes what a condensation dropped
event_json   writes an event as JSON
times        finds when events happened
texts        joins all words of an event, for full-text indexes
tables       shows histories, Views and answers as tables, in notebooks
safe_text    writes text and JSON that are safe to print on a terminal
"""
