"""The page of one conversation. The picture on the page has a column for every version and a row
for every event. ``foldlog report`` writes the page into one file, and ``foldlog serve`` serves it
live.

    document.py   makes the page's document of a history
    texts.py      makes the document of one event
    assets.py     joins the sources in ``app/``
    report.py     writes the file
"""
