"""A client of the page, and how its answers are taken apart."""

from __future__ import annotations

from datetime import date
from html.parser import HTMLParser
from pathlib import Path

from starlette.testclient import TestClient

from tuneplan.web.app import application
from tuneplan.web.settings import Settings

HOST = "http://127.0.0.1"
DAY = date(2026, 11, 30)
JOB = (
    "model=Qwen/Qwen2.5-7B-Instruct&method=lora&gpu=NVIDIA+H100+SXM&count=1"
    "&samples=1000&mean_tokens=500"
)


def client(*roots: Path, **settings: object) -> TestClient:
    """The page on a fixed day."""
    made = Settings(roots=tuple(roots), today=lambda: DAY, **settings)
    return TestClient(application(made), base_url=HOST)


class Elements(HTMLParser):
    """Every element of a page with its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.found
            if name == tag and wanted.items() <= attributes.items()
        ]

    def one(self, tag: str, **wanted: str) -> dict[str, str | None]:
        (found,) = self.all(tag, **wanted)
        return found
