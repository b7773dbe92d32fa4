"""Looks through a built site: every link leads to a page and a place in it, and nothing is fetched from another host."""

import html.parser
import os
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        for name in ("id", "name"):
            if values.get(name):
                self.places.add(values[name])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.fetched.append(values.get("href", ""))
        if values.get("src"):
            self.fetched.append(values["src"])


def check(site):
    pages = {}
    for folder, _, names in os.walk(site):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    pages[os.path.realpath(path)] = Page(file.read())
    problems = [] if pages else [f"{site}: no pages"]
    for path, page in pages.items():
        shown = os.path.relpath(path, os.path.realpath(site))
        if shown == "404.html":
            continue  # its links are those of a server's root
        for address in page.links + page.fetched:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme in ("http", "https") or address.startswith("//"):
                if address in page.fetched:
                    problems.append(f"{shown}: fetches {address}")
                continue
            if parts.scheme:
                continue
            target = os.path.realpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))) if parts.path else path
            if os.path.isdir(target):
                target = os.path.join(target, "index.html")
            if not os.path.exists(target):
                problems.append(f"{shown}: {address} leads nowhere")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].places:
                problems.append(f"{shown}: {address}: there is no such place on that page")
    return sorted(set(problems))


if __name__ == "__main__":
    found = check(sys.argv[1])
    print("\n".join(found) or "every link leads somewhere, and nothing is fetched from another host")
    sys.exit(1 if found else 0)
