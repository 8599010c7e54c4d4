"""The interface for agent runtimes.

histories.py   a store of histories
history.py     one history
replies.py     the reply of a model as events
lease.py       at most one worker drives a history
effects.py     run the tool of a call at most once; the state of each call
once.py        do a work once and record it
runtimes.py    run tools at most once that another runtime runs
facts.py       whether the agent knows some words
recall.py      the tool by which an agent reads what was forgotten
"""
