"""Lambda's file systems: storage in one region, which instances there mount, and which is billed by its use."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from ledger.kernel.grant import Grant
from providers import cloud_names
from providers.adapter_helpers import instant, listed, number, part, text
from providers.clouds.lambda_cloud.adapter import RATE_LIMITS, LambdaConfig, LambdaProvider
from providers.clouds.lambda_cloud.errors import CLOUD, call_error, create_error, error_code, not_there
from providers.clouds.lambda_cloud.instances import VOLUMES_PATH
from providers.completeness import COMPLETE, Completeness
from providers.contract import InstanceSpec, NotSeen, ObservedInstance
from providers.errors import InUse, OutcomeUnknown, ProviderError, UnexpectedResponse
from providers.http import HttpReply
from providers.volume_adapter import VolumeAdapter, capabilities

NAME = cloud_names.volumes_of(CLOUD)
#: Dollars per GiB that is used and month; metered by the hour.
USD_GB_MONTH, HOURS_PER_MONTH = Decimal("0.20"), Decimal(730)
GIB = Decimal(1024**3)
#: No file system has so many bytes. One terabyte has more of them than any other number of an API.
MOST_BYTES = Decimal(10) ** 18
#: No size is given to Lambda: it is what an approval pays for. The most is ours.
LEAST_GB, MOST_GB = 1, 8192


class LambdaVolumes(VolumeAdapter):
    """The file systems of one Lambda account."""

    name = NAME
    capabilities = capabilities(
        volume_gb=(LEAST_GB, MOST_GB),
        path=VOLUMES_PATH,
        name_max=60,
        charges=False,
        rate_limits=RATE_LIMITS,
        grows=True,
        reads=False,
    )
    KEY_PAGE, KEY_VARIABLE = LambdaProvider.KEY_PAGE, LambdaProvider.KEY_VARIABLE
    CREATE = ("POST", "/filesystems")
    ONE = "/filesystems"
    REF_WRONG = "that is not an id of a Lambda file system; one is 32 hexadecimal digits"

    def __init__(self, config: LambdaConfig, *more: Any) -> None:
        super().__init__(config, *more)

    def price_usd_h(self, size_gb: Decimal) -> Decimal:
        return size_gb * USD_GB_MONTH / HOURS_PER_MONTH

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        return call_error(reply)

    def _groups(self, method: str, path: str) -> tuple[str, ...]:
        """How often a file system may be made is not documented, so a create takes the turn of a launch."""
        return ("launch", "free second") if (method, path) == self.CREATE else ("any",)

    async def _places(self) -> Iterable[str]:
        """The regions in which some type is rented out: a file system elsewhere could be mounted by nothing."""
        data = part(await self._read("GET", "/instance-types"), "data")
        kinds = [kind.get("regions_with_capacity_available") for kind in data.values() if isinstance(kind, dict)]
        regions = [region for rows in kinds if isinstance(rows, list) for region in rows]
        return {name for region in regions if (name := text(part(region).get("name")))}

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One file system. Lambda has no call for one, so a whole list of its own is read for it."""
        listing = await self.list()
        return next((item for item in listing.items if item.ref == ref), NotSeen(self.name, listing.at))

    async def _listed(self) -> tuple[Iterable[Any], Completeness]:
        """One answer without pages, as documented; a token as in Lambda's other lists would be followed."""

        async def page(token: str | None) -> tuple[Any, Any]:
            body = await self._read("GET", "/file-systems", params={"page_token": token} if token else {})
            rows = listed(self.name, body, "data", "Lambda's answer has no list of file systems")
            return rows, body.get("page_token")

        return [row async for rows in self._pages(page, "list of file systems") for row in rows], COMPLETE

    async def mounted_by(self, ref: str) -> tuple[str, ...]:
        """The instances that mount it, by its id or by its name."""
        rows, _ = await self._listed()
        row = next((row for row in rows if isinstance(row, dict) and row.get("id") == ref), None)
        if row is None or row.get("is_in_use") is False:
            return ()
        body = await self._read("GET", "/instances")
        machines = listed(self.name, body, "data", "Lambda's answer has no list of instances")
        users = [str(one.get("id")) for one in machines if isinstance(one, dict) and _mounts(one, ref, row.get("name"))]
        return tuple(users or (["an instance"] if row.get("is_in_use") else []))

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One create. A name that is taken can only be our own label's, so its outcome is unknown."""
        reply = await self._post(spec, {"name": spec.name, "region": spec.offer.key})
        data = reply.fields.get("data")
        if not reply.ok or data is None:
            raise create_error(reply)
        try:
            return self.observed(data)
        except UnexpectedResponse as error:
            raise OutcomeUnknown(
                self.name, f"Lambda answered the create with {reply.status} but without a readable file system"
            ) from error

    def observed(self, row: Any) -> ObservedInstance:
        ref = row.get("id") if isinstance(row, dict) else None
        if not isinstance(ref, str) or not ref:
            raise UnexpectedResponse(self.name, "Lambda described a file system without an id")
        used = number(row.get("bytes_used"), MOST_BYTES)
        used_gb = None if used is None or used < 0 else used / GIB
        region = text(part(row, "region").get("name"))
        return self._seen(ref, text(row.get("name")), region, used_gb, created_at=instant(row.get("created")))

    def _gone(self, reply: HttpReply) -> bool:
        return not_there(reply)

    def _deleted(self, reply: HttpReply, ref: str) -> None:
        if error_code(reply) == "filesystems/filesystem-in-use":
            raise InUse(self.name, "Lambda keeps the file system while an instance uses it")
        error = self.error_of(reply)
        if error is not None:
            raise error
        deleted = part(reply.fields, "data").get("deleted_ids")
        if not isinstance(deleted, list) or ref not in deleted:
            raise UnexpectedResponse(self.name, "Lambda's answer to the delete does not name the file system")


def _mounts(machine: dict[str, Any], ref: str, name: Any) -> bool:
    """Whether an instance mounts the file system of this id or name."""
    mounts = machine.get("file_system_mounts") or []
    by_id = any(isinstance(mount, dict) and mount.get("file_system_id") == ref for mount in mounts)
    return by_id or name in (machine.get("file_system_names") or [])
