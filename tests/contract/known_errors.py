"""What the clouds' documents have wrong, or leave out, each with what is known instead; everything else must agree."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable, Mapping

from tests.contract.documents import FILES, FOLDER, Exchange, documents

#: Cloud → what a document says otherwise (`*` stands for anything) → what is known about it.
KNOWN: Mapping[str, Mapping[str, str]] = {
    "vast": {
        "POST /api/v0/bundles/: sent: type: 'on-demand' is not *": "The official client sends this spelling.",
        "POST /api/v0/bundles/: sent: order: * is too short": "Two elements are meant of each entry.",
        "PUT /api/v0/asks/{id}/: sent: runtype: *": "The official client's spelling for direct SSH.",
        "PUT /api/v0/asks/{id}/: sent: env: * is not of type 'string'": "The official client sends an object.",
        "PUT /api/v0/asks/{id}/: sent: client_id is unknown": "The official client always sends it.",
        "GET /api/v0/instances/{id}/: answered 200: instances: None *": "An instance that is not there reads as null.",
        "GET /api/v0/instances/{id}/: answered 200: instances.extra_env.*": "Pairs, as in the example of the listing.",
        "GET /api/v0/instances/{id}/: answered 200: instances.ports: *": "Docker's object, null before it runs.",
        "*: answered 404: error: 'auth_error' is not one of *": "A refused key is 404 with auth_error everywhere.",
        "*: answered: 404 is not documented": "A refused key is 404 with auth_error, and so is what is not there.",
        "GET /api/v0/users/current: not documented": "Documented with a slash at its end, written without one.",
        "GET /api/v0/charges/: answered 200: results.*start: * is not of type *": "The sandbox cuts finer rows.",
        "GET /api/v0/charges/: answered 200: results.*end: * is not of type *": "The sandbox cuts finer rows.",
    },
    "runpod": {
        "GET /v2/catalog/gpus: answered 200: gpus.*.price.*: None *": "A price is missing, as has been seen.",
        "GET /v2/pods: query: limit is unknown": "Three independent clients page through the pods.",
        "GET /v2/pods: query: cursor is unknown": "As above.",
        "POST /graphql: not documented": "The older API, the only one that tells the balance.",
    },
    "lambda": {
        "GET /api/v1/instances/{id}: answered: 429 is not documented": "Only the limit is documented.",
    },
}


def undocumented(cloud: str, calls: Iterable[Exchange]) -> list[str]:
    """Everything in these calls that the documents say otherwise and that is not known; nothing without documents."""
    if cloud not in FILES or not FOLDER.is_dir():
        return []
    said = {one for call in calls if call.cloud == cloud for one in _problems(call)}
    return sorted(one for one in said if not any(fnmatch.fnmatchcase(one, known) for known in KNOWN[cloud]))


@functools.lru_cache(maxsize=4096)
def _problems(call: Exchange) -> tuple[str, ...]:
    """The same catalogue is answered again and again, so each different call is looked at once."""
    return tuple(documents(call.cloud).problems(call))
