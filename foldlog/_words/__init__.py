"""Describe events in words for people, and as JSON for programs.

gist         an event in one line
reasons      why something was forgotten; dropped: what a condensation dropped
event_json   an event as JSON
times        when events happened
texts        all words of an event, for full-text indexes
tables       histories, Views and answers as tables, in notebooks
safe_text    text and JSON that are safe to print on a terminal
"""
