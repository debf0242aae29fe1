"""What a finished run leaves: files behind short-lived signed addresses, and the text that it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from providers.clouds.kaggle.errors import CLOUD
from providers.errors import UnexpectedResponse


@dataclass(frozen=True, slots=True)
class RunOutput:
    """File names with their addresses, which are secrets for some minutes, and the log, hostile until escaped.

    Both are empty while the run is not over.
    """

    files: tuple[tuple[str, str], ...]
    log: str


def page(body: dict[str, Any]) -> tuple[RunOutput, str]:
    """One page of `ListKernelSessionOutput`, and the token of the next one ("" on the last)."""
    rows, token = body.get("files", []), body.get("nextPageToken") or ""
    if not isinstance(rows, list) or not isinstance(token, str):
        raise UnexpectedResponse(CLOUD, "kaggle's answer has no list of output files")
    return RunOutput(tuple(map(_file, rows)), _text(body.get("log") or "")), token


def _file(row: Any) -> tuple[str, str]:
    name, url = (row.get("fileName"), row.get("url")) if isinstance(row, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(url, str):
        raise UnexpectedResponse(CLOUD, "kaggle listed an output file without a name or an address")
    return name, url


def _text(log: Any) -> str:
    """The log is JSON text of events; what is not is passed on as it came."""
    if not isinstance(log, str):
        return ""
    try:
        events = json.loads(log)
    except ValueError:
        return log
    if not isinstance(events, list):
        return log
    return "".join(str(event.get("data", "")) for event in events if isinstance(event, dict))
