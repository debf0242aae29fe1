"""Generate docs/api.md and docs/openapi.json from the application that serves the REST API."""

from __future__ import annotations

import json
from typing import Any

from bot.api.app import DESCRIPTION, routes
from bot.api.dependencies import CALLS_PER_MINUTE, SCOPE_FIELD
from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.access.scopes import ACTIVE_KEYS, FOR_PEOPLE, KEY_DAYS, MEANING, PLAIN


def openapi() -> str:
    """Return the OpenAPI 3.1 document, as /openapi.json serves it."""
    return json.dumps(routes({}).openapi(), indent=1, ensure_ascii=False) + "\n"


def _rows() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for path, methods in routes({}).openapi()["paths"].items():
        for method, operation in methods.items():
            does = str(operation.get("description") or operation.get("summary") or "").split("\n\n")[0]
            found.append((code(f"{method.upper()} {path}"), " ".join(does.split()), code(_scope(operation))))
    return found


def _scope(operation: dict[str, Any]) -> str:
    return str(operation.get(SCOPE_FIELD, ""))


def page() -> str:
    programs = ", ".join(code(scope) for scope in PLAIN)
    people = ", ".join(code(scope) for scope in sorted(FOR_PEOPLE))
    return whole_page(
        "REST API",
        DESCRIPTION,
        "[Programs](programs/index.md) walks through a first rental with `curl`. The whole description is OpenAPI 3.1: "
        "[openapi.json](openapi.json), served as `/openapi.json`. The body of a request for GPUs is the portable job "
        "request, [schemas/job.json](schemas/job.json).",
        "## Routes",
        table(("route", "what it does", "scope"), _rows()),
        "## Keys",
        f"Send a key as `Authorization: Bearer gpuk_…`. It works for {KEY_DAYS} days, or as long as `--days` says. "
        f"Everybody can have {ACTIVE_KEYS} keys, so that a new one can replace the old one. A revoked key stops "
        "at once. The database has only a hash of the secret, made with a key that is not in the database.",
        f"A person answers for each program (`atlas`). Unless you name others, its key has these scopes: {programs}. "
        f"Only the key of a person (`operator:ada`) can have {people}. The person behind a program counts as its "
        "requester, and can't approve what it requests.",
        table(("scope", "what it allows"), [(code(scope), text) for scope, text in MEANING.items()]),
        "## Limits",
        f"Each key has {CALLS_PER_MINUTE} calls a minute, over all replicas (`GPU_SHOPPER_API_CALLS_PER_MINUTE`). "
        "`RateLimit-Limit` and `RateLimit-Remaining` show what is left. Above it, the answer is 429 with "
        "`Retry-After`. So is the answer to a request above the policy's `max_requests_per_hour`, and the code tells "
        "them apart. A body can have 64 KiB. What a key can't see answers 404, as if it did not exist.",
    )
