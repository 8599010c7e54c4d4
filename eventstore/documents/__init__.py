"""Documents are named values beside the events of a conversation.

changes        set and read documents, in the transaction of events
values         the value of a document at a version, from the events that changed it
differences    what changed between two JSON values
listing        conversations by their attributes, which are a document, and by last activity
"""
