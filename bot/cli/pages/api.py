"""Generate docs/api.md and docs/openapi.json from the application that serves the REST API."""

from __future__ import annotations

import json
from typing import Any

from bot.api.app import DESCRIPTION, routes
from bot.api.dependencies import CALLS_PER_MINUTE, SCOPE_FIELD
from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.access.scopes import ACTIVE_KEYS, FOR_PEOPLE, KEY_DAYS, MEANING, PLAIN

EXAMPLE = """```sh
gpu-shopper keys create atlas --owner U012AB3CD          # shown once: gpuk_…
curl -H "Authorization: Bearer $KEY" "$URL/api/v1/inventory?gpu=4090&max_price=0.80"
curl -H "Authorization: Bearer $KEY" -H "Idempotency-Key: order-17" -H "Content-Type: application/json" \\
     -d '{"resources": {"gpu": "4090"}, "hours": 2, "reason": "fine-tune"}' "$URL/api/v1/sessions"
```"""


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
        EXAMPLE,
        "The whole description is OpenAPI 3.1: [openapi.json](openapi.json), served as `/openapi.json`. The body of a "
        "request for GPUs is the portable job request, [schemas/job.json](schemas/job.json).",
        "## Routes",
        table(("route", "what it does", "scope"), _rows()),
        "## Keys",
        f"`gpuk_<id>_<secret>`, only as `Authorization: Bearer`. A key lives {KEY_DAYS} days unless you choose "
        f"another time. A holder has at most {ACTIVE_KEYS} valid keys, so that one can replace the other. A revoked "
        "key stops working at once. The secret is stored as a hash under a key that is not in the database.",
        f"A program (`atlas`) has a person who answers for it, and without other words the scopes {programs}. Only the "
        f"key of a person (`operator:ada`) may have {people}. Who asked under one name does not approve under another: "
        "the person behind a program counts as its requester.",
        table(("scope", "what it allows"), [(code(scope), text) for scope, text in MEANING.items()]),
        "## Limits",
        f"{CALLS_PER_MINUTE} calls a minute for each key, over all replicas (`GPU_SHOPPER_API_CALLS_PER_MINUTE`). "
        "`RateLimit-Limit` shows the limit, `RateLimit-Remaining` what this replica has left. Above the limit, the "
        "answer is 429 with `Retry-After`. A body has at most 64 KiB. What a key may not see answers 404, as if it did "
        "not exist.",
    )
