"""Balance and bill, from the older API (v0): the newer one's billing pages are not known.

v0 takes forms with a key and a token of its own, and says `success` as a boolean or as a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import number, text
from providers.clouds.tensordock.errors import CLOUD, call_error
from providers.contract import Charge
from providers.errors import AuthFailed, UnexpectedResponse
from providers.http import CloudHttp

_REFUSED = ("auth", "api key", "api_key", "token", "credential", "permission")
_COMPONENTS: Mapping[str, str] = {"vm_expenses": "gpu", "storage_expenses": "storage"}


async def read_v0(http: CloudHttp, path: str, form: Mapping[str, str]) -> dict[str, Any]:
    """One read of v0. Raises what its answer means."""
    reply = await http.read("POST", path, data=dict(form))
    body = reply.fields
    told = body.get("success")
    if str(told).lower() == "true":
        return body
    if told is not None and reply.status < 500:
        said = (text(body.get("error")) or "").lower()
        if any(part in said for part in _REFUSED):
            raise AuthFailed(CLOUD, "TensorDock refuses the key of its older API")
        raise UnexpectedResponse(CLOUD, "TensorDock's older API refuses the call")
    error = call_error(reply)
    raise error or UnexpectedResponse(CLOUD, "TensorDock's older API answered with something that is not its own")


def credit(body: Mapping[str, Any]) -> Decimal:
    """Spendable dollars; may be negative."""
    found = number(body.get("balance"))
    if found is None:
        raise UnexpectedResponse(CLOUD, "TensorDock's answer has no balance")
    return found


def periods(since: datetime, until: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """The calendar months, in UTC, of [since, until), at least one: name, first moment, first moment of the next."""
    at = since.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while at < until or at <= since:
        # Thirty-two days after the first always lie in the next month.
        following = (at + timedelta(days=32)).replace(day=1)
        yield at.strftime("%Y-%m"), at, following
        at = following


def charges(body: Mapping[str, Any], period: str, start: datetime, end: datetime) -> list[Charge]:
    """One line per machine and kind of cost for one month: v0 has totals, not times.

    Raises `UnexpectedResponse` when neither list is there, or a row has no machine or no amount.
    """
    if not any(isinstance(body.get(name), list) for name in _COMPONENTS):
        raise UnexpectedResponse(CLOUD, "TensorDock's answer has no list of expenses")
    lines = []
    for name, component in _COMPONENTS.items():
        for row in body.get(name) or []:
            ref = row.get("virtual_machine_id") if isinstance(row, dict) else None
            amount = number(row.get("total_amount")) if isinstance(row, dict) else None
            if not isinstance(ref, str) or amount is None:
                raise UnexpectedResponse(CLOUD, "TensorDock sent an expense without a machine or an amount")
            lines.append(
                Charge(
                    cloud=CLOUD,
                    line_id=f"{period}/{name}/{ref}",
                    ref=ref,
                    component=component,
                    amount_usd=amount,
                    start=start,
                    end=end,
                )
            )
    return lines
