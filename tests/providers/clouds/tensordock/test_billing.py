"""Balance and bill of TensorDock, from its older API, where a key for it is set."""

from __future__ import annotations

from decimal import Decimal

import pytest

from providers.errors import (
    AuthFailed,
    ProviderError,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
    Unsupported,
)
from providers.registry import REGISTRY
from tests.providers.clouds.tensordock.served import cloud, clouds
from tests.providers.served import Served

__all__ = ["cloud", "clouds"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_without_the_older_key_money_is_not_told(cloud: Served) -> None:
    environment = {k: v for k, v in cloud.environment.items() if "V0_API" not in k}
    provider = REGISTRY["tensordock"].connect(environment, cloud.clock)
    try:
        assert (provider.capabilities.balance, provider.capabilities.charges) == (False, False)
        now = cloud.clock.now()
        for call in (provider.balance, lambda: provider.charges(now, now)):
            with pytest.raises(Unsupported):
                await call()
        report = await provider.preflight()
    finally:
        await provider.close()
    assert (report.ok, report.balance) == (True, None)


async def test_success_may_be_a_word(cloud: Served) -> None:
    cloud.arm("v0_words")

    assert (await cloud.provider.balance()).credit_usd == 1000


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("v0_auth", AuthFailed), ("v0_html", UnexpectedResponse), ("v0_503", Unavailable), ("v0_429", RateLimited)],
)
async def test_trouble_with_the_older_api(cloud: Served, fault: str, expected: type[ProviderError]) -> None:
    cloud.arm(fault, None)
    with pytest.raises(expected):
        await cloud.provider.balance()
    assert not (await cloud.provider.preflight()).ok


async def test_a_bill_over_two_months_has_a_line_for_each(cloud: Served) -> None:
    start = cloud.clock.now()
    running = await cloud.running()
    cloud.step(40 * 24 * 3600)
    lines = await cloud.provider.charges(start, cloud.clock.now())

    assert {line.component for line in lines} == {"gpu", "storage"}
    assert len({line.line_id for line in lines}) == len(lines) == 4
    total = sum((line.amount_usd for line in lines if line.ref == running.ref), Decimal(0))
    assert abs(total - cloud.truth()[0].total_usd) <= Decimal("0.0001")
