"""The whole walk on Kaggle: quota, push, complete, output; with a lost reply, and with a sender that dies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from providers.clouds.kaggle.adapter import KaggleConfig, KaggleProvider
from providers.clouds.kaggle.instances import RunOutput, page
from providers.contract import InstanceStatus, NotSeen
from providers.errors import OutcomeUnknown, UnexpectedResponse
from tests.providers.clouds.kaggle.served import NAME, TWO, Served, create, get, grant, running, spec
from tests.providers.scripted import answer, playing
from tests.support.clock import SteppedClock

LABEL = NAME.removeprefix("contract-")


@pytest_asyncio.fixture
async def kaggle() -> AsyncIterator[Served]:
    async with running() as served:
        yield served


async def walk_to_the_end(served: Served, ref: str) -> str:
    """From a push to the text of its result."""
    assert await served.provider.output(ref) == RunOutput((), "")
    served.step(10)
    assert (await get(served, ref)).status is InstanceStatus.RUNNING
    served.step(700)
    assert (await get(served, ref)).status is InstanceStatus.TERMINATED
    left = await served.provider.output(ref)
    assert left.log == f"{NAME} v1 on NvidiaTeslaT4\n"
    ((name, url),) = left.files
    assert name == "result.txt"
    async with httpx.AsyncClient(trust_env=False) as http:
        return (await http.get(url)).text


async def test_quota_push_complete_output(kaggle: Served) -> None:
    assert (await kaggle.provider.preflight()).ok
    (offer,) = await kaggle.provider.offers(TWO, disk_gb=20, spot=False)
    made = await kaggle.provider.create(spec(offer=offer), grant())

    assert await walk_to_the_end(kaggle, made.ref) == f"result of {made.ref}\n"


@pytest.mark.parametrize("fault", ["lost_reply", "error_after_push", "unreadable_reply"])
async def test_the_walk_goes_on_after_a_lost_reply(kaggle: Served, fault: str) -> None:
    kaggle.arm(fault)
    with pytest.raises(OutcomeUnknown):
        await create(kaggle)
    found = await kaggle.provider.find(LABEL)
    assert not isinstance(found, NotSeen)

    assert await walk_to_the_end(kaggle, found[0].ref) == f"result of {found[0].ref}\n"
    assert len(kaggle.cloud.account.runs) == 1


async def test_a_sender_that_died_after_its_push_is_followed_by_one_that_does_not_push(kaggle: Served) -> None:
    await create(kaggle)
    config = KaggleConfig(username=kaggle.cloud.USERNAME, api_key=kaggle.cloud.API_KEY, base_url=kaggle.url)
    successor = KaggleProvider(config, kaggle.clock)
    with pytest.raises(OutcomeUnknown, match="already"):
        await successor.create(spec(), grant())
    found = await successor.find(LABEL)
    await successor.close()

    assert not isinstance(found, NotSeen)
    assert [item.ref for item in found] == [f"simuser/{NAME}/1"]
    assert len(kaggle.engine.creates) == 1


@pytest.mark.parametrize("body", [{"files": {}}, {"nextPageToken": 7}, {"files": [{}]}, {"files": ["x"]}])
def test_a_broken_list_of_files_is_told(body: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedResponse):
        page(body)


@pytest.mark.parametrize(
    ("log", "text"),
    [("", ""), ("plain\n", "plain\n"), ('{"a": 1}', '{"a": 1}'), ('[{"data": "a"}, 7, {"data": "b"}]', "ab"), (7, "")],
)
def test_a_log_is_events_or_text(log: Any, text: str) -> None:
    assert page({"log": log})[0].log == text


async def test_output_pages_are_joined_and_must_end() -> None:
    first = answer({"files": [{"fileName": "a", "url": "u1"}], "log": "x", "nextPageToken": "p2"})
    last = answer({"files": [{"fileName": "b", "url": "u2"}]})
    for script, ends in (((first, last), True), ((first, first), False)):
        async with playing(*script) as played:
            config = KaggleConfig(username="ada", api_key="0" * 32, base_url=f"http://127.0.0.1:{played.port}")
            provider = KaggleProvider(config, SteppedClock())
            if ends:
                left = await provider.output("ada/train/1")
                assert left == RunOutput((("a", "u1"), ("b", "u2")), "x")
            else:
                with pytest.raises(UnexpectedResponse, match="does not end"):
                    await provider.output("ada/train/1")
            await provider.close()
