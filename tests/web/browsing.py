"""A real browser on the real server: Debian's Chromium, a fresh profile, nothing but our origin."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from tuneplan.web.app import application
from tuneplan.web.settings import Settings
from web.asking import DAY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-default-apps", "--font-render-hinting=none"),
)
LANGUAGES = ("en", "zh-TW", "zh-CN")
WIDE, NARROW = 1280, 390


@contextmanager
def served(*roots: Path, **settings: object) -> Iterator[str]:
    """The page on a free port of this machine; its origin."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    made = Settings(roots=tuple(roots), today=lambda: DAY, **settings)
    server = uvicorn.Server(uvicorn.Config(application(made), log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium with a profile of its own."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


@dataclass(frozen=True, kw_only=True)
class Journeys:
    """Opens pages of one server, and holds each to what every page must keep to."""

    browser: Browser
    origin: str

    @contextmanager
    def __call__(
        self,
        address: str,
        *,
        language: str = "en",
        theme: str = "light",
        width: int = WIDE,
        scripts: bool = True,
        status: int = 200,
    ) -> Iterator[Page]:
        """A page, drawn; at the end nothing may have gone wrong in it, or left the machine."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            locale=language,
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        page, wrong = context.new_page(), []
        page.on("console", lambda told: wrong.append(told.text) if told.type != "log" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(self.origin) else wrong.append(asked.url),
        )
        page.on("requestfailed", lambda asked: wrong.append(f"{asked.url}: {asked.failure}"))
        try:
            answered = page.goto(self.origin + address)
            assert answered is not None
            assert answered.status == status
            if scripts:
                drawn(page)
            yield page
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert wrong == []
        finally:
            context.close()


def drawn(page: Page) -> None:
    """Wait until every chart that can be seen is drawn."""
    page.wait_for_function(
        """() => document.querySelector("#answer:not([aria-busy=true])") &&
        [...document.querySelectorAll("figure[data-chart]")]
        .every((one) => !one.checkVisibility() || one.querySelector(".drawing svg"))"""
    )
