"""Find the histories at a path, and read the records of each history as JSON values.

histories.py       finds the histories in a file, or in a folder and the folders below
naming.py          gives a history its name
readers.py         reads the records of one history: in lines, in an array, or in a folder with one
                   file per record
documents.py       reads JSON documents with the text of each record
frames.py          stores the text between the records of a document
sub_agent_meta.py  reads the file beside the log of a sub-agent
source_reading.py  reads the records of one history in blocks for an import
found_sources.py   describes one history at a path, or the reason for finding no history

No module of this package is for one format only. ``Recognize`` finds the format of a record.
"""
