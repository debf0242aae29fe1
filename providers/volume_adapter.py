"""The base of what lists, creates and deletes a cloud's network volumes.

A volume is rented like a machine, under the same contract: it is offered per region, created once under a label,
listed, and deleted. So one approval, one create and one sweep serve both (docs/adr/0085). It has no GPU and no SSH.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar

from ledger.kernel import money
from ledger.kernel.grant import Grant
from ledger.kernel.volume_name import volume_of
from providers.adapter import CloudAdapter
from providers.capabilities import BillGranularity, BillingRule, BillingStart, Capabilities, PortAccess
from providers.completeness import AnswerPart, Completeness, Rest
from providers.contract import InstanceSpec, InstanceStatus, Listing, NotSeen, ObservedInstance, Offer
from providers.errors import InUse, InvalidSpec
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply
from providers.rate_limits import Pace


def capabilities(
    *,
    volume_gb: tuple[int, int],
    path: str,
    name_max: int,
    charges: bool,
    rate_limits: dict[str, Pace],
    grows: bool,
    reads: bool,
) -> Capabilities:
    """What the volumes of a cloud can do: they are created and deleted, and nothing runs on them.

    `grows`: what is on one is billed, and the cloud sets no limit to it. `reads`: the cloud shows one by its own id.
    """
    return Capabilities(
        stop=False,
        spot=False,
        labels=True,
        balance=False,
        charges=charges,
        bill_granularity=BillGranularity.HOUR if charges else BillGranularity.INSTANT,
        logs=False,
        restart=False,
        ssh=False,
        ports=PortAccess.NONE,
        images=False,
        single_node="a volume is no machine",
        billing=BillingRule(starts=BillingStart.CREATE),
        visibility_lag_s=30,
        boot_expected_s=5,
        name_max=name_max,
        name_extra_chars="-",
        rate_limits=rate_limits,
        volume_gb=volume_gb,
        volume_path=path,
        volume_grows=grows,
        volume_reads=reads,
    )


class VolumeAdapter(CloudAdapter):
    """The network volumes of one account. The provider contract says what each method promises."""

    #: The path under which one volume is deleted and, where the cloud has such a call, read.
    ONE: ClassVar[str]

    @abstractmethod
    async def _places(self) -> Iterable[str]:
        """Every region in which the cloud makes volumes."""

    @abstractmethod
    async def _listed(self) -> tuple[Iterable[Any], Completeness]:
        """The cloud's own rows of the volumes in the account, and whether they are all of them.

        A page that fails raises: half a list is no list.
        """

    @abstractmethod
    async def mounted_by(self, ref: str) -> tuple[str, ...]:
        """The ids of what mounts the volume now, ours and others, as far as the cloud shows them."""

    @abstractmethod
    def price_usd_h(self, size_gb: Decimal) -> Decimal:
        """What so many GB cost per hour."""

    @abstractmethod
    def observed(self, row: Any) -> ObservedInstance:
        """One volume as the contract sees it. `UnexpectedResponse` for a row without an id."""

    @abstractmethod
    def _gone(self, reply: HttpReply) -> bool:
        """Whether the answer says that there is no such volume. A page of something in between says nothing."""

    @abstractmethod
    def _deleted(self, reply: HttpReply, ref: str) -> None:
        """Raise what an answer to a delete means that did not take the order."""

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """One offer per region, for who asks for a volume of a size that there is."""
        least, most = self.capabilities.volume_gb or (1, 0)
        (asked, *others) = constraint.names or ("",)
        if others or not volume_of(asked) or spot is True or self._missing or not least <= disk_gb <= most:
            return AnswerPart()
        at, price = self._clock.now(), money.rate(self.price_usd_h(Decimal(disk_gb)))
        offers = tuple(
            Offer(
                cloud=self.name,
                key=place,
                gpu=asked,
                gpu_count=1,
                memory_gb=Decimal(0),
                region=place,
                spot=False,
                price_usd_h=price,
                fetched_at=at,
                gpu_usd_h=price - self._storage(price),
                storage_usd_h=self._storage(price),
                # Nothing that runs there can be lost, so no repeated work is counted.
                reliability=Decimal(1),
                disk_gb_max=most,
            )
            for place in sorted(await self._places())
        )
        return AnswerPart(offers)

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One volume by its own id. Only an answer that says so is `NotSeen`."""
        at = self._clock.now()
        reply = await self._http.read("GET", f"{self.ONE}/{self._checked(ref)}")
        return NotSeen(self.name, at) if self._gone(reply) else self.observed(self._body(reply))

    async def list(self) -> Listing:
        """Every volume of the account, ours and others. A list that may be cut says so, and proves no absence."""
        at = self._clock.now()
        rows, completeness = await self._listed()
        items = {item.ref: item for item in map(self.observed, rows)}
        return Listing(self.name, self.account, at, tuple(items.values()), completeness=completeness)

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        least, most = self.capabilities.volume_gb or (1, 0)
        if not least <= spec.disk_gb <= most or not 0 < len(spec.name) <= self.capabilities.name_max:
            raise InvalidSpec(self.name, f"{self.title} has volumes of {least} to {most} GB, {spec.disk_gb} was asked")
        return {}

    async def terminate(self, ref: str) -> bool:
        """Delete the volume with all data on it, unless something mounts it: no cloud is relied on to refuse that."""
        if users := await self.mounted_by(ref):
            raise InUse(self.name, f"the volume is mounted at {self.title} by {', '.join(users)}")
        reply = await self._http.read("DELETE", f"{self.ONE}/{self._checked(ref)}")
        if self._gone(reply):
            return False
        self._deleted(reply, ref)
        return True

    def _storage(self, price_usd_h: Decimal) -> Decimal:
        """The part of the price that never changes: the ledger books a rate that may change apart from it."""
        return Decimal(0) if self.capabilities.volume_grows else price_usd_h

    def _seen(
        self, ref: str, name: str | None, region: str | None, size_gb: Decimal | None, **more: Any
    ) -> ObservedInstance:
        """A volume as it is listed: it is there, so it is ready and billed. Without a size its rate is unknown."""
        price = None if size_gb is None else max(money.rate(self.price_usd_h(size_gb)), money.MICRO_USD)
        return ObservedInstance(
            cloud=self.name,
            ref=ref,
            name=name,
            status=InstanceStatus.RUNNING,
            status_text="there",
            price_usd_h=price,
            storage_usd_h=None if price is None else self._storage(price),
            region=region,
            **more,
        )
