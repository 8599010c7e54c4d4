"""Documents are named values beside the events of a conversation.

changes        set and read documents, in one transaction with events
values         compute the value of a document at a version
differences    compute the difference between two JSON values
"""
