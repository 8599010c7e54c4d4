"""What several packages must know about conversations.

companions.py    conversations with additional data about another conversation
labels.py        the names of the kinds of events
unreadable.py    the readable events of a damaged conversation
"""
