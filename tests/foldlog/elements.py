"""Collects the elements and scripts of a page. No text of an event may become one of them."""

from html.parser import HTMLParser


class Elements(HTMLParser):
    """The elements of a page with their attributes, each script with its text, and all texts."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.scripts = []
        self.texts = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_data(self, data):
        self.texts.append(data)
        if self.cdata_elem == "script":
            self.scripts[-1][1] += data
