"""RunPod's network volumes: storage in one data centre, which pods there mount. REST v2 `/v2/network-volumes`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from ledger.kernel.grant import Grant
from providers import cloud_names
from providers.adapter_helpers import instant, listed, number, ruled, text
from providers.clouds.runpod import pages
from providers.clouds.runpod.adapter import RATE_LIMITS, RunPodConfig, RunPodProvider
from providers.clouds.runpod.errors import CLOUD, call_error, create_error
from providers.clouds.runpod.instances import HOURS_PER_MONTH, VOLUMES_PATH, rfc3339
from providers.completeness import COMPLETE, Completeness
from providers.contract import Charge, InstanceSpec, ObservedInstance
from providers.errors import OutcomeUnknown, ProviderError, UnexpectedResponse
from providers.http import HttpReply
from providers.volume_adapter import VolumeAdapter, capabilities

NAME = cloud_names.volumes_of(CLOUD)
LEAST_GB, MOST_GB = 10, 4096
#: Dollars per GB and month: of the first terabyte, and of what is above it.
FIRST_USD, FURTHER_USD, FIRST_GB = Decimal("0.07"), Decimal("0.05"), Decimal(1000)
#: The type with a published price. A data centre has others, which are not offered.
STANDARD = "STANDARD"
CUT = "RunPod did not say whether more network volumes follow."


def price_usd_h(size_gb: Decimal) -> Decimal:
    """What a standard volume of so many GB costs per hour, whether or not a pod uses it."""
    first = min(size_gb, FIRST_GB)
    return (first * FIRST_USD + (size_gb - first) * FURTHER_USD) / HOURS_PER_MONTH


class RunPodVolumes(VolumeAdapter):
    """The network volumes of one RunPod account."""

    name = NAME
    capabilities = capabilities(
        volume_gb=(LEAST_GB, MOST_GB),
        path=VOLUMES_PATH,
        name_max=191,
        charges=True,
        rate_limits=RATE_LIMITS,
        grows=False,
        reads=True,
    )
    KEY_PAGE, KEY_VARIABLE = RunPodProvider.KEY_PAGE, RunPodProvider.KEY_VARIABLE
    CREATE = ("POST", "/v2/network-volumes")
    ONE = "/v2/network-volumes"
    REF_WRONG = "that is not an id of a runpod network volume; one looks like agv6w2qcg7"

    def __init__(self, config: RunPodConfig, *more: Any) -> None:
        super().__init__(config, *more)
        self._key = config.credential

    def price_usd_h(self, size_gb: Decimal) -> Decimal:
        return price_usd_h(size_gb)

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        return None if reply.ok else call_error(reply, [self._key])

    def _groups(self, method: str, path: str) -> tuple[str, ...]:
        return ("v2",)

    async def _places(self) -> Iterable[str]:
        body = await self._read("GET", "/v2/catalog/datacenters", params={"networkVolumeTypes": STANDARD})
        rows = listed(self.name, body, "dataCenters", "runpod's answer has no list of data centers")
        return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    async def _listed(self) -> tuple[Iterable[Any], Completeness]:
        """Every cursor page. An answer without `pagination` may be cut anywhere: its page size is not documented."""
        unsaid = False

        async def page(cursor: str | None) -> tuple[Any, str | None]:
            nonlocal unsaid
            body = await self._read("GET", self.ONE, params={"cursor": cursor} if cursor else {})
            rows = listed(self.name, body, "networkVolumes", "runpod's answer has no list of network volumes")
            pagination = body.get("pagination")
            unsaid = pagination is None
            return rows, None if unsaid else pages.next_cursor(pagination, "network volumes")

        rows = [row async for some in self._pages(page, "list of network volumes") for row in some]
        return rows, Completeness.partial(CUT) if unsaid else COMPLETE

    async def mounted_by(self, ref: str) -> tuple[str, ...]:
        """The pods of the account that mount it, stopped ones too. Workers of serverless endpoints are not shown."""
        rows = await pages.pod_rows(self._read, self._pages)
        return tuple(str(row.get("id")) for row in rows if ref in pages.mounted_volumes(row))

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One create. Only a success with an id is a yes."""
        body = {"name": spec.name, "size": spec.disk_gb, "dataCenter": spec.offer.key, "type": STANDARD}
        reply = await self._post(spec, body)
        if not reply.ok:
            raise create_error(reply, [self._key])
        try:
            return self.observed(reply.body)
        except UnexpectedResponse as error:
            raise OutcomeUnknown(
                self.name, f"runpod answered the create with {reply.status} but without a readable volume"
            ) from error

    def observed(self, row: Any) -> ObservedInstance:
        ref = row.get("id") if isinstance(row, dict) else None
        size = number(row.get("size")) if isinstance(row, dict) else None
        if not isinstance(ref, str) or not ref or size is None:
            raise UnexpectedResponse(self.name, "runpod described a network volume without an id or a size")
        return self._seen(ref, text(row.get("name")), text(row.get("dataCenter")), size)

    def _gone(self, reply: HttpReply) -> bool:
        """Only RunPod's own problem document says so: a gateway and a wrong path answer 404 as well."""
        return reply.status == 404 and reply.fields.get("status") == 404

    def _deleted(self, reply: HttpReply, ref: str) -> None:
        if not reply.ok:
            raise call_error(reply, [self._key])

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """Hourly buckets of the storage bill, as of pods."""
        params = {"startTime": rfc3339(since), "endTime": rfc3339(until), "bucketSize": "hour"}
        body = await self._read("GET", "/v2/billing/network-volumes", params=params)
        records = listed(self.name, body, "records", "runpod's bill has no records")
        lines = (self._line(record) for record in records)
        found = (line for line in lines if line.start < until and line.end > since)
        return ruled(found, self.capabilities.billing)

    def _line(self, record: Any) -> Charge:
        row = record if isinstance(record, dict) else {}
        ref, start, end = row.get("networkVolumeId"), instant(row.get("startTime")), instant(row.get("endTime"))
        total = number(row.get("totalAmount"))
        if not isinstance(ref, str) or start is None or end is None or total is None:
            raise UnexpectedResponse(self.name, "runpod's bill has a record without volume, period or amount")
        return Charge(self.name, f"{ref}/{start:%Y-%m-%dT%H:%M:%SZ}/storage", ref, "storage", total, start, end)
