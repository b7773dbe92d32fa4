"""Checks a report page: every element is closed in its order, links and ids fit,
and the old text of each file can be read off it, line by line.

    check_html.py PAGE FILE...
"""

import html.parser
import os
import sys

VOID = {"meta", "link", "br", "img", "input", "hr", "col"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], [], []
        self.heading, self.cell, self.texts = None, None, {}

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "a":
            self.links.append(attributes["href"])
        names = attributes.get("class", "").split()
        if tag == "h2" and "code" in names:
            self.heading = ""
        if tag == "td" and "old-side" in names and "number" not in names:
            self.cell = ""

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())
        if tag == "h2" and self.heading is not None:
            self.file, self.heading = self.heading, None
            self.texts[self.file] = []
        if tag == "td" and self.cell is not None:
            self.texts[self.file].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        if self.heading is not None:
            self.heading += data
        if self.cell is not None:
            self.cell += data


page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert not page.open, page.open
assert len(set(page.ids)) == len(page.ids), "an id is there twice"
assert page.links
for link in page.links:
    assert link.startswith("#") and link[1:] in page.ids, link
for path in sys.argv[2:]:
    text = open(path, encoding="utf-8").read().rstrip("\n").split("\n")
    shown = page.texts[os.path.basename(path)]
    assert shown == text, [(a, b) for a, b in zip(shown, text) if a != b][:3]
