"""From paths to records: the files that hold a history, its place in them, and its records as JSON
values.

    histories.py   the histories in a file, and in a folder and the folders below it
    naming.py      the name of a history
    readers.py     the records of one history: lines, an array, a folder with a record a file
    documents.py   JSON documents, with the text of each record; frames.py: what they hold between
                   the records
    found_sources.py  one history that was found at a path, or the reason for finding none

No file here knows a format: ``Recognize`` finds the format of a record.
"""
