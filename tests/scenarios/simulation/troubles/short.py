"""Answers that lack rows: a listing or a search as a cloud gives it that lost a part of itself and says nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx

from tests.scenarios.simulation.troubles.kinds import Kind
from tests.support.barriers import Which
from tests.support.stack import CALLS

VOLUMES = {
    "runpod": Which("GET", "/runpod/v2/network-volumes"),
    "lambda": Which("GET", "/lambda/api/v1/file-systems"),
}
#: How deep the rows of an answer lie.
DEEPEST = 2


def kind_of(cloud: str, request: httpx.Request) -> Kind | None:
    """What a call asks for, if its answer may lack rows."""
    method, path = request.method, request.url.path
    if CALLS[cloud]["search"].fits(method, path):
        return Kind.SHORT_MARKET
    return Kind.SHORT_VOLUMES if cloud in VOLUMES and VOLUMES[cloud].fits(method, path) else None


def shortened(answer: httpx.Response, share: float, random: Random) -> httpx.Response:
    """The same answer with about this share of its rows; as it was where it holds no rows."""
    try:
        data = json.loads(answer.content)
    except ValueError:
        return answer
    rows = max(_rows(data, DEEPEST), key=len, default=None)
    if isinstance(rows, list):
        rows[:] = [row for row in rows if random.random() < share]
    elif rows is not None:
        for name in [name for name in rows if random.random() >= share]:
            del rows[name]
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return httpx.Response(answer.status_code, headers=headers, content=json.dumps(data), request=answer.request)


def _rows(data: Any, deepest: int) -> Iterator[list[Any] | dict[str, Any]]:
    """Lists of objects, and objects whose values all are objects."""
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        yield data
    elif isinstance(data, dict):
        if deepest < DEEPEST and data and all(isinstance(row, dict) for row in data.values()):
            yield data
        elif deepest:
            for value in data.values():
                yield from _rows(value, deepest - 1)
