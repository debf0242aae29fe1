"""Read the cursor pages of RunPod: its pods, what they mount, and where the next page of a list is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from providers.adapter_helpers import listed, part
from providers.clouds.runpod.errors import CLOUD
from providers.errors import UnexpectedResponse

#: Rows of one page of pods: the most that RunPod gives.
PAGE_LIMIT = 1000

Reader = Callable[..., Awaitable[dict[str, Any]]]
Pages = Callable[[Callable[[str | None], Awaitable[tuple[Any, Any]]], str], AsyncIterator[Any]]


async def pod_rows(read: Reader, all_pages: Pages) -> list[Any]:
    """Return the rows of every pod. An answer without `pagination` is the last page, unless it is full."""

    async def page(cursor: str | None) -> tuple[Any, str | None]:
        params = {"limit": str(PAGE_LIMIT), "includeClusterPods": "true"}
        body = await read("GET", "/v2/pods", params=params | ({"cursor": cursor} if cursor else {}))
        rows = listed(CLOUD, body, "pods", "runpod's answer has no list of pods")
        if body.get("pagination") is None:
            if len(rows) >= PAGE_LIMIT:
                raise UnexpectedResponse(CLOUD, "runpod sent a full page of pods without saying whether more follow")
            return rows, None
        return rows, next_cursor(body["pagination"], "pods")

    return [row async for rows in all_pages(page, "list of pods") for row in rows]


def next_cursor(pagination: Any, what: str) -> str | None:
    """Return the cursor of the next page, or None on the last one. Contradictions raise: half a list proves nothing."""
    if not isinstance(pagination, dict):
        raise UnexpectedResponse(CLOUD, "runpod's pagination is not an object")
    cursor = pagination.get("nextCursor")
    if pagination.get("hasNextPage") is False or (cursor is None and "hasNextPage" not in pagination):
        return None
    if not isinstance(cursor, str) or not cursor:
        raise UnexpectedResponse(CLOUD, f"runpod says that more {what} follow but not where")
    return cursor


def mounted_volumes(row: Any) -> set[str]:
    """Return the ids of the network volumes that a pod mounts."""
    mounts = part(row if isinstance(row, dict) else {}, "mounts").get("network")
    return {str(mount.get("volumeId")) for mount in mounts or () if isinstance(mount, dict)}
