"""The page of one conversation. The picture on the page has a column for every version and a row
for every event. ``foldlog report`` writes the page into one file, and ``foldlog serve`` serves it
live.

    document.py   makes the page's document of a history
    texts.py      makes the document of one event
    assets.py     joins the sources in ``app/``
    report.py     writes the file

``app/`` has the frame (``page.html``, ``page.css``), and a module for each part of the page:

    main.js          the page of one run; opening.js: the page while the run is loaded
    runs.js          the list of all runs; titles.js: shortens titles that begin alike
    history.js       which events the View of each version shows
    transcript.js    the run as text; texts.js and markdown.js: show texts of events
    strip.js         the tokens of the View over time; chart.js: every version and every event
    marks.js         errors, condensations and long waits; notes.js: the reader's notes
    knew.js          what the model knew; why.js: why the model is sent an event or not
    agents.js        the sub-agents of a run; compare.js: two runs side by side
    sources.js       gets the data from the file or from the server; dom.js: makes elements
"""
