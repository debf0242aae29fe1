"""The SSH key that a launch at Lambda names: registered, used as it is, or removed, before and after the launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.errors import (
    AuthFailed,
    InvalidSpec,
    NotSent,
    ProviderError,
    RateLimited,
    UnexpectedResponse,
)
from providers.leftovers import Leaves
from tests.contract.served import PUBLIC_KEY
from tests.providers.clouds.lambda_cloud.served import cloud, clouds
from tests.providers.served import Served

__all__ = ["cloud", "clouds"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

MATERIAL = " ".join(PUBLIC_KEY.split()[:2])


def key_names(cloud: Served) -> list[str]:
    return [key["name"] for key in cloud.account.ssh_keys]


def paths(cloud: Served) -> list[tuple[str, str]]:
    return [(call.method, call.path.removeprefix("/api/v1")) for call in cloud.engine.calls]


async def test_a_new_key_is_registered_once_and_named_in_the_launch(cloud: Served) -> None:
    offer = await cloud.offer()
    cloud.engine.calls.clear()
    for _ in range(2):
        await cloud.provider.create(cloud.spec(offer), cloud.grant())

    launch = ("POST", "/instance-operations/launch")
    assert paths(cloud) == [("GET", "/ssh-keys"), ("POST", "/ssh-keys"), launch, ("GET", "/ssh-keys"), launch]
    laptop, ours = cloud.account.ssh_keys
    assert laptop["name"] == "laptop"
    assert ours["public_key"] == MATERIAL
    assert ours["name"].startswith("gpu-shopper-")
    assert {machine.key_name for machine in cloud.account.instances.values()} == {ours["name"]}


async def test_a_key_that_somebody_registered_under_another_name_is_used(cloud: Served) -> None:
    cloud.account.add_key("ada", f"{MATERIAL} elsewhere")
    await cloud.create()

    assert key_names(cloud) == ["laptop", "ada"]
    assert [machine.key_name for machine in cloud.account.instances.values()] == ["ada"]


async def test_the_key_of_another_launch_is_borrowed_only_where_the_account_takes_none_twice(cloud: Served) -> None:
    await cloud.create()
    (_, first), offer = key_names(cloud), await cloud.offer()
    other = replace(cloud.grant(), label="another")
    cloud.arm("keys_taken_once")
    await cloud.provider.create(cloud.spec(offer), other)
    assert [machine.key_name for machine in cloud.account.instances.values()] == [first, first]

    await cloud.provider.create(cloud.spec(offer), other)
    assert key_names(cloud) == ["laptop", first, "gpu-shopper-another"]


async def test_a_key_that_is_not_removed_or_not_told_rightly_is_an_error(cloud: Served) -> None:
    leaves = cloud.provider
    assert isinstance(leaves, Leaves)
    await cloud.create()
    (_, ours) = await leaves.leftovers()
    cloud.arm("keys_inactive")
    with pytest.raises(AuthFailed):
        await leaves.remove(ours)
    assert len(key_names(cloud)) == 2
    del cloud.account.ssh_keys[0]["id"]
    with pytest.raises(UnexpectedResponse, match="without an id"):
        await leaves.leftovers()


async def test_a_key_that_another_replica_registered_meanwhile_is_used(cloud: Served) -> None:
    cloud.arm("keys_added_meanwhile")
    await cloud.create()

    assert len(key_names(cloud)) == 2
    assert len(cloud.alive()) == 1


async def test_another_key_under_our_name_is_never_trusted(cloud: Served) -> None:
    await cloud.create()
    cloud.account.ssh_keys[1]["public_key"] = "ssh-ed25519 AAAAsomebodyelses"
    with pytest.raises(InvalidSpec, match="another SSH key under the name"):
        await cloud.create()

    assert len(cloud.creates()) == 1


async def test_without_a_key_to_bring_the_accounts_own_is_used(cloud: Served) -> None:
    bare = replace(cloud.spec(await cloud.offer()), public_keys=())
    await cloud.provider.create(bare, cloud.grant())
    assert [machine.key_name for machine in cloud.account.instances.values()] == ["laptop"]

    cloud.account.ssh_keys[:] = []
    await cloud.create()  # Somebody else's machine: its key is no key for this one.
    cloud.engine.creates.pop()
    with pytest.raises(InvalidSpec, match="needs an SSH key"):
        await cloud.provider.create(bare, cloud.grant())
    assert len(cloud.creates()) == 1


@pytest.mark.parametrize(
    ("fault", "times", "expected"),
    [
        ("keys_503", None, NotSent),
        ("keys_garbage", 1, NotSent),
        ("keys_provider", 1, NotSent),
        ("keys_429", 1, RateLimited),
        ("keys_auth", 1, AuthFailed),
    ],
)
async def test_trouble_with_the_key_is_a_definite_no_and_nothing_is_launched(
    cloud: Served, fault: str, times: int | None, expected: type[ProviderError]
) -> None:
    spec = cloud.spec(await cloud.offer())
    cloud.arm(fault, times)
    with pytest.raises(expected) as caught:
        await cloud.provider.create(spec, cloud.grant())

    assert caught.value.definite_no
    assert cloud.creates() == []


async def test_a_key_that_is_deleted_meanwhile_is_registered_again(cloud: Served) -> None:
    await cloud.create()
    (ours,) = (key for key in cloud.account.ssh_keys if key["name"] != "laptop")
    await cloud.ask("DELETE", f"/ssh-keys/{ours['id']}")
    await cloud.create()

    assert len(key_names(cloud)) == 2
    assert len(cloud.alive()) == 2
