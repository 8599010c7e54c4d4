"""The page that shows one history: versions across, events down. ``foldlog report`` writes it into one file,
``foldlog serve`` serves it live.

``document.py`` makes what the page is told of a history, ``texts.py`` what it is told of one event; ``assets.py``
puts the sources in ``app/`` together; ``report.py`` writes the file.
"""
