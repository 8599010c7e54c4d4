"""What many rooms know of a conversation.

companions.py    conversations with additional data about another conversation
labels.py        names of the kinds of events
unreadable.py    reads a damaged conversation without the damaged events
"""
