"""Checks that hold for every page, for any family and any names in its table."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
OURS = re.compile(r"[\w-]+(/\d+)?")  # a place in the page


NO_BREAK = "\N{NO-BREAK SPACE}"  # before a percent sign

BESIDE = re.compile(r"[^/:?#]+/report\.html")  # the page of a run in a folder beside that of a comparison


class Page(HTMLParser):
    """Rough model of the page in a browser: every element is closed in its turn."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.ids, self.links, self.words = [], [], [], [], []
        self.scripts, self.policy, self.tags = [], "", []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self.open]
        self.problems += [f"id {name} is there twice" for name in {i for i in self.ids if self.ids.count(i) > 1}]
        self.problems += [f"#{name} leads nowhere" for name in self.links if name.split("/")[0] not in self.ids]

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)
            if tag == "script":
                self.scripts.append([dict(attributes), ""])

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            value = value or ""
            if name.startswith("on"):
                self.problems.append(f"<{tag} {name}> runs")
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                if value.startswith("#"):
                    self.links.append(value[1:])
                elif not value.startswith("data:") and not BESIDE.fullmatch(value):
                    self.problems.append(f"<{tag} {name}={value!r}> leads out of the file")
            if name == "content" and "default-src" in value:
                self.policy = value
            if not value.replace("\n", " ").isprintable():
                self.problems.append(f"<{tag} {name}> has what cannot be seen: {value!r}")

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)
            if not data.replace("\n", " ").replace(NO_BREAK, " ").isprintable():
                self.problems.append(f"a text has what cannot be seen: {data!r}")


def strings(data):
    """Yield every text in a JSON document."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        yield from (s for item in data.items() for x in item for s in strings(x))
    elif isinstance(data, list):
        yield from (s for x in data for s in strings(x))


def problems(text):
    """Problems of a page; [] if there are none."""
    page = Page(text)
    result = list(page.problems)
    if len(page.scripts) != 2 or page.scripts[0][0].get("type") != "application/json":
        return [*result, f"it has {len(page.scripts)} scripts"]
    (_, data), (_, script) = page.scripts
    ours = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    if f"script-src 'sha256-{ours}'" not in page.policy or "default-src 'none'" not in page.policy:
        result.append("its policy does not name its script alone")
    try:
        parts = json.loads(data, parse_constant=lambda name: result.append(f"{name} is no JSON"))
    except ValueError as error:
        return [*result, f"its data are no JSON: {error}"]
    result += ["a letter of its data begins a tag"] * ("<" in data)
    result += [f"hidden letters in its data: {s!r}" for s in strings(parts) if not s.isprintable()]
    result += [f"no place for {p['id']}" for p in parts if p["id"] not in page.ids]
    return result


def parts_of(text):
    """Parts that the script shows."""
    return json.loads(Page(text).scripts[0][1])
