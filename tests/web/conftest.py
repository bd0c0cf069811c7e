"""One browser and one server for a module of journeys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from web.browsing import Journeys


@pytest.fixture(scope="module")
def journey() -> Iterator[Journeys]:
    """``with journey("/fit?...", language="zh-TW", theme="dark", width=390) as page:``"""
    from web.browsing import Journeys, browser, served  # the other tests need no browser

    with served() as origin, browser() as started:
        yield Journeys(browser=started, origin=origin)
