"""What a runtime touches.

histories.py   a store of histories
history.py     one history
replies.py     the reply of a model as events
lease.py       at most one worker drives a history
recall.py      the tool by which an agent reads what was forgotten
"""
