"""Fetching a ``config.json`` from the Hugging Face hub: only when asked, with a short time-out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.errors import UnknownName, UnreadableFile
from tuneplan.language import message

TIMEOUT_S: Final = 5.0
_DEFAULT_ENDPOINT: Final = "https://huggingface.co"


def fetch_config(hub_id: str, *, timeout_s: float = TIMEOUT_S) -> Mapping[str, Any]:
    """The configuration of a hub model; ``HF_ENDPOINT`` and ``HF_TOKEN`` are respected.

    Raises:
        UnknownName: the hub has no such model.
        UnreadableFile: no network, no answer in time, a gated model, or not a configuration.
    """
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    endpoint = os.environ.get("HF_ENDPOINT", _DEFAULT_ENDPOINT).rstrip("/")
    url = f"{endpoint}/{hub_id}/resolve/main/config.json"
    if not url.startswith(("https://", "http://")):
        raise _unreachable(hub_id, url, f"unsupported address {endpoint!r}")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=timeout_s) as answer:  # noqa: S310
            config = json.load(answer)
    except HTTPError as problem:
        raise _refused(hub_id, url, problem.code) from problem
    except (OSError, ValueError) as problem:
        raise _unreachable(hub_id, url, str(problem)) from problem
    if not isinstance(config, Mapping):
        raise _unreachable(hub_id, url, "the answer is not a JSON object")
    return config


def _refused(hub_id: str, url: str, status: int) -> UnknownName | UnreadableFile:
    if status in (401, 403):
        return UnreadableFile(
            message(
                "hub_model_gated",
                "the hub does not show {hub_id} without permission (or it does not exist): set "
                "HF_TOKEN, or give the path of its config.json",
                hub_id=hub_id,
            ),
            path=url,
        )
    if status == 404:
        return UnknownName(
            message("hub_model_unknown", "the hub has no model {hub_id}", hub_id=hub_id),
            name=hub_id,
        )
    return _unreachable(hub_id, url, f"status {status}")


def _unreachable(hub_id: str, url: str, problem: str) -> UnreadableFile:
    return UnreadableFile(
        message(
            "hub_unreachable",
            "{hub_id} could not be read from the hub ({problem}): check the network, or give the "
            "path of its config.json or a bare size such as '7B'",
            hub_id=hub_id,
            problem=problem,
        ),
        path=url,
    )
