"""Read a built documentation site: every link leads somewhere, nothing is loaded from elsewhere.

``python tools/check_site.py build/site`` prints what is wrong, with exit status 1 where anything
is. Links of the text to other hosts are left to the reader; what a page *loads* (scripts, styles,
pictures, fonts, frames) must lie in the folder.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes through which a page loads something by itself.
LOADS = {"src", "srcset", "poster", "data", "background"}
# Relations of <link> that only say something about the page.
SAYS = {"canonical", "alternate", "next", "prev", "edit", "license", "author"}
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")\s]+)|@import\s+['\"]([^'\"]+)")


@dataclass(slots=True)
class Page(HTMLParser):
    """What a page loads, where it leads, and the names of its places."""

    loads: list[str] = field(default_factory=list)
    leads: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes of an element."""
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        self.loads += [value for name, value in given.items() if name in LOADS and value]
        self.loads += _in_style(given.get("style", ""))
        if tag == "link" and not set(given.get("rel", "").split()) & SAYS:
            self.loads.append(given.get("href", ""))
        elif tag == "a" and "href" in given:
            self.leads.append(given["href"])


def _in_style(text: str) -> list[str]:
    return [first or second for first, second in STYLE_URL.findall(text)]


def read_pages(site: Path) -> dict[Path, Page]:
    """Every HTML page of a built site, by its file."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


def faults(site: Path) -> Iterator[str]:
    """What is wrong with a built site, a sentence each."""
    pages = read_pages(site)
    if not pages:
        yield f"{site} holds no page"
    for path, page in pages.items():
        where = path.relative_to(site)
        yield from _told(where, "loads", page.loads, partial(_load, path))
        if path.name != "404.html":  # stands for any address, so its links are from the root
            yield from _told(where, "leads to", page.leads, partial(_lead, pages, path))
    for path in sorted(site.rglob("*.css")):
        loads = _in_style(path.read_text(encoding="utf-8"))
        yield from _told(path.relative_to(site), "loads", loads, partial(_load, path))


def _told(
    where: Path, verb: str, targets: list[str], wrong: Callable[[str], Iterator[str]]
) -> Iterator[str]:
    for target in targets:
        yield from (f"{where} {verb} {target}: {why}" for why in wrong(target))


def _load(path: Path, target: str) -> Iterator[str]:
    parts = urlsplit(target)
    if parts.scheme == "data" or target.startswith("#"):
        return
    if parts.scheme or parts.netloc:
        yield "from another host"
    elif path.name != "404.html" and not (path.parent / unquote(parts.path)).is_file():
        yield "there is no such file"


def _lead(pages: dict[Path, Page], path: Path, target: str) -> Iterator[str]:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    there = there / "index.html" if there.is_dir() else there
    if not there.is_file():
        yield "there is no such file"
    elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].names:
        yield "there is no such place on the page"


def main(arguments: list[str]) -> int:
    """Print what is wrong with the sites named."""
    found = [fault for name in arguments for fault in faults(Path(name).resolve())]
    print("\n".join(found) if found else "every link leads somewhere, nothing is loaded from afar")
    return 1 if found or not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
