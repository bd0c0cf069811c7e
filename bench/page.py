"""From a moved slider to the painted answer, in a real Chromium: ``make bench-page``.

The server is ``tuneplan serve`` as people start it. The clock starts with the browser's ``input``
event and ends in the frame after the answer is in the page and every chart in sight is drawn. Each
slider is moved through all its stops, which the server has not seen before ("first time"), and back
("again", which is what it is to move a slider to and fro). Also shown: how long the request took of
it, and the size of the answer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from served import CARD, JOB, served

from tuneplan.frozen import dataclass
from tuneplan.web.views import by_name

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# View, address, fields whose sliders are moved, targets in ms: median and 95 %.
WATCHED = (
    ("fit", f"/fit?{CARD}", ("max_length", "micro_batch"), (100, 250)),
    ("levers", f"/levers?{CARD}", ("max_length", "micro_batch"), (100, 250)),
    ("plan", f"/plan?{JOB}", ("max_length",), (500, None)),
)
# Keeps the time of the last move: input event, answer asked for and had, painted.
CLOCK = """() => {
  let begun = 0;
  document.addEventListener("input", (event) => { begun = event.timeStamp; }, true);
  document.addEventListener("answer:drawn", () => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      const asked = performance.getEntriesByType("resource")
        .filter((one) => one.initiatorType === "xmlhttprequest").at(-1);
      globalThis.took = { all: performance.now() - begun, asked: asked.duration,
        bytes: asked.encodedBodySize };
      performance.clearResourceTimings();
    };
    channel.port2.postMessage(0);
  }));
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One move of a slider, in milliseconds and bytes."""

    all_ms: float
    asked_ms: float
    answer_bytes: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("views", nargs="*", default=[name for name, *_ in WATCHED])
    parser.add_argument("--most", type=int, default=30, help="moves of a slider, each way")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n")
    head = ("", "moves", "median", "p95", "worst", "request", "kB", "target")
    print("{:28}{:>6}{:>9}{:>9}{:>9}{:>9}{:>8}{:>14}".format(*head))
    with served() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, address, sliders, target in WATCHED:
            if name not in chosen.views or name not in by_name():
                continue
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            for slider in sliders:
                page.goto(server.origin + address)
                page.wait_for_function("() => globalThis.tuneplanCharts?.live.size")
                page.evaluate(CLOCK)
                there, back = ([*moved(page, slider, key, chosen.most)] for key in KEYS)
                show(f"{name}, {slider}, first time", there, target)
                show(f"{name}, {slider}, again", back, target)
            page.close()
        browser.close()
    print(f"\nms; load {os.getloadavg()[0]:.1f} after")


KEYS = ("ArrowRight", "ArrowLeft")


def moved(page: Page, slider: str, key: str, most: int) -> Iterator[Move]:
    """Press an arrow on a slider until it stands at its end."""
    selector = f'[data-slides="{slider}"]'
    page.focus(selector)
    if key == KEYS[0]:
        page.keyboard.press("Home")
        page.wait_for_timeout(1000)
    for _ in range(most):
        at = page.eval_on_selector(selector, "one => [one.value, one.min, one.max]")
        if at[0] == at[2 if key == KEYS[0] else 1]:
            return
        page.evaluate("() => { globalThis.took = null; }")
        page.keyboard.press(key)
        page.wait_for_function("() => globalThis.took")
        took = page.evaluate("() => globalThis.took")
        yield Move(
            all_ms=took["all"],
            asked_ms=took["asked"],
            answer_bytes=took["bytes"],
        )


def show(name: str, moves: list[Move], target: tuple[int, int | None]) -> None:
    """One line of the table."""
    if not moves:
        return
    taken = sorted(move.all_ms for move in moves)
    late = taken[min(len(taken) - 1, int(len(taken) * 0.95))]
    wanted = f"{target[0]} / {target[1] or '-'}"
    figures = (
        statistics.median(taken), late, taken[-1],
        statistics.median(move.asked_ms for move in moves),
        statistics.median(move.answer_bytes for move in moves) / 1e3,
    )  # fmt: skip
    print(f"{name:28}{len(moves):>6}" + "".join(f"{f:>9.0f}" for f in figures[:4])
          + f"{figures[4]:>8.0f}{wanted:>14}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
