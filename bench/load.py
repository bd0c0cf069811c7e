"""Eight clients at once for a minute, over all views: ``make bench-load``.

Prints answers per second, errors, and what the server holds in memory after a tenth of the time,
in between, and at the end. Each client asks for views, fragments and JSON of changing jobs.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from served import JOB, Served, served

from tuneplan.web.views import views

CARDS = ("H100+SXM", "RTX+4090", "L4", "A100+80GB+SXM")
LENGTHS = (512, 1024, 2048, 4096, 8192)
METHODS = ("lora", "qlora", "full")


def main() -> None:
    """Ask, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    chosen = parser.parse_args()
    counts: Counter[tuple[str, int]] = Counter()
    with served() as server:
        end = monotonic() + chosen.seconds
        threads = [
            threading.Thread(target=ask, args=(server, end, seed, counts))
            for seed in range(chosen.clients)
        ]
        held = [server.resident_bytes]
        for thread in threads:
            thread.start()
        for _ in range(10):
            sleep(chosen.seconds / 10)
            held.append(server.resident_bytes)
        for thread in threads:
            thread.join()
        held.append(server.resident_bytes)
    total = sum(counts.values())
    print(f"{chosen.clients} clients, {chosen.seconds:.0f} s: {total} answers, "
          f"{total / chosen.seconds:.1f} a second")  # fmt: skip
    for (name, status), number in sorted(counts.items()):
        print(f"  {name:24}{status:>5}{number:>8}")
    wrong = sum(number for (_, status), number in counts.items() if status not in (200, 400))
    print(f"errors: {wrong}")
    print("resident MB, by tenths of the time: " + " ".join(f"{one / 1e6:.0f}" for one in held))


def ask(server: Served, end: float, seed: int, counts: Counter[tuple[str, int]]) -> None:
    """One client with a connection of its own."""
    drawn = random.Random(seed)  # noqa: S311 - which job is asked about is no secret
    names = [view.name for view in views() if not view.posts]
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    while monotonic() < end:
        name, form = drawn.choice(names), drawn.choice(("page", "fragment", "JSON"))
        query = (
            f"{JOB.replace('method=lora', 'method=' + drawn.choice(METHODS))}"
            f"&gpu={drawn.choice(CARDS)}&max_length={drawn.choice(LENGTHS)}"
            f"&micro_batch={drawn.choice((1, 2, 4))}"
        )
        headers = {"HX-Request": "true"} if form == "fragment" else {}
        address = f"{'/api' if form == 'JSON' else ''}/{name}?{query}"
        try:
            connection.request("GET", address, headers=headers)
            answer = connection.getresponse()
            answer.read()
            counts[f"{name}, {form}", answer.status] += 1
        except OSError as error:
            counts[f"{name}, {form}: {type(error).__name__}", 0] += 1
            connection.close()
            connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.close()


if __name__ == "__main__":
    main()
