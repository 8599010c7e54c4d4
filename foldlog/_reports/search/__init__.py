"""Search the stored records and events.

searching.py    search records and events
index.py        an index of words, which says what to search
words.py        the words of a text, as hashes
recall_tool.py  the tool with which an agent reads forgotten events
secrets.py      find keys and tokens in texts by their shapes
passwords.py    find passwords by what stands before them, and replace them
"""
