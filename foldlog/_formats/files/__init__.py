"""From paths to records: find the files that contain a history, its place in them, and its records
as JSON values.

    histories.py   the histories in a file, and in a folder and the folders below it
    naming.py      the name of a history
    readers.py     the records of one history: in lines, in an array, or in a folder with a file for
                   each record
    documents.py   JSON documents, with the text of each record; frames.py: the text between the
                   records
    found_sources.py  one history that was found at a path, or the reason for finding none

No file in this package knows a format: ``Recognize`` finds the format of a record.
"""
