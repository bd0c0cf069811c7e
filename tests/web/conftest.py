"""One browser and one server for a module of journeys."""

from collections.abc import Iterator

import pytest

from web.browsing import Journeys, browser, served


@pytest.fixture(scope="module")
def journey() -> Iterator[Journeys]:
    """``with journey("/fit?...", language="zh-TW", theme="dark", width=390) as page:``"""
    with served() as origin, browser() as started:
        yield Journeys(browser=started, origin=origin)
