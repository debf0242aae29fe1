"""Who somebody is when they decide: asked of Slack, remembered for a minute, and refused when nobody knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.cli.access import in_process_people
from bot.practice.app import Practice
from bot.practice.faults import SlackFault
from bot.practice.model import User
from bot.practice.workspace import Workspace
from bot.rules.policy.policy import Policy
from bot.settings import load
from bot.slack.identity import REMEMBERED, Directory, shown_name
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.network_guard import NetworkInTransaction, transaction_open
from tests.slack.conftest import APP_TOKEN, BOT_TOKEN, MANIFEST
from tests.slack.signing import SECRET
from tests.support.clock import SteppedClock

GROUP = "S0GPUAPPROVERS"
HOME = "T0PRACTICE"


@pytest.fixture
def space(clock: SteppedClock) -> Workspace:
    space = Workspace(clock, signing_secret=SECRET, bot_token=BOT_TOKEN, app_token=APP_TOKEN, manifest=MANIFEST)
    space.add_user(User("U0GONE", "gone", "Gone", "gone@practice.example", deleted=True))
    return space


@pytest.fixture
async def web(space: Workspace) -> AsyncIterator[Web]:
    practice = Practice(space)
    async with practice.serve():
        client = Web(SlackSettings(bot_token=BOT_TOKEN, signing_secret=SECRET, base_url=practice.api_url))
        yield client
        await client.close()


def directory(web: Web, clock: SteppedClock, **policy: object) -> Directory:
    return Directory(web, clock, replace(Policy(), **policy), None)  # type: ignore[arg-type] # Each test knows its fields.


def calls(space: Workspace, method: str) -> int:
    return sum(record.name == method for record in space.log)


async def test_a_full_member(web: Web, clock: SteppedClock) -> None:
    facts = await directory(web, clock).facts("U0BOB", HOME)
    assert facts.known
    assert facts.team_ok
    assert [facts.is_bot, facts.is_deleted, facts.is_guest] == [False, False, False]
    assert facts.actor.ref == f"slack:{HOME}/U0BOB"


async def test_strangers_bots_and_the_deactivated(web: Web, clock: SteppedClock) -> None:
    people = directory(web, clock)
    erin = await people.facts("U0ERIN", "T0PARTNER")
    assert not erin.team_ok
    assert erin.is_guest
    assert not (await people.facts("U0BOB", "T0PARTNER")).team_ok
    assert (await people.facts("U0GPUBOT", HOME)).is_bot
    assert (await people.facts("U0GONE", HOME)).is_deleted


async def test_somebody_whom_slack_does_not_know_is_no_member(web: Web, clock: SteppedClock) -> None:
    facts = await directory(web, clock).facts("U0NOBODY", HOME)
    assert (facts.known, facts.team_ok) == (True, False)


@pytest.mark.parametrize("kind", ["http_500", "lose_reply"])
async def test_a_failed_look_up_refuses(web: Web, space: Workspace, clock: SteppedClock, kind: str) -> None:
    space.faults.add(SlackFault("api", "users.info", kind, times=5))
    assert not (await directory(web, clock).facts("U0BOB", HOME)).known


@pytest.mark.slow
async def test_a_short_rate_limit_is_waited_out_by_reads(web: Web, space: Workspace, clock: SteppedClock) -> None:
    space.faults.add(SlackFault("api", "users.info", "rate_limited", seconds=0))
    assert (await directory(web, clock).facts("U0BOB", HOME)).known


async def test_facts_are_remembered_for_a_minute(web: Web, space: Workspace, clock: SteppedClock) -> None:
    people = directory(web, clock, approver_groups=(GROUP,))
    assert (await people.facts("U0BOB", HOME)).groups == (GROUP,)
    space.usergroups[GROUP].users.remove("U0BOB")
    clock.advance(59)
    assert (await people.facts("U0BOB", HOME)).groups == (GROUP,)
    assert calls(space, "users.info") == 1
    clock.advance(2)
    assert (await people.facts("U0BOB", HOME)).groups == ()
    assert calls(space, "users.info") == 2
    assert calls(space, "auth.test") == 1


async def test_a_person_the_policy_names_needs_no_group(web: Web, space: Workspace, clock: SteppedClock) -> None:
    people = directory(web, clock, approver_groups=(GROUP,), approvers=("U0BOB",))
    space.faults.add(SlackFault("api", "usergroups.users.list", "error", times=9))
    assert (await people.facts("U0BOB", HOME)).known
    assert not (await people.facts("U0DAVE", HOME)).known


async def test_a_workspace_without_groups_still_decides(web: Web, space: Workspace, clock: SteppedClock) -> None:
    people = directory(web, clock, approver_groups=(GROUP, "S0OTHER"))
    space.faults.add(SlackFault("api", "usergroups.users.list", "error", error="plan_upgrade_required"))
    facts = await people.facts("U0BOB", HOME)
    assert facts.known
    assert facts.groups == ()


async def test_the_memory_is_bounded(web: Web, clock: SteppedClock) -> None:
    people = directory(web, clock)
    for number in range(REMEMBERED):
        people._remember(f"U{number}", {})
    assert (await people.facts("U0BOB", HOME)).known
    assert len(people._known) < REMEMBERED


async def test_no_call_inside_a_transaction(web: Web) -> None:
    with transaction_open(), pytest.raises(NetworkInTransaction):
        await web.call("auth.test")


async def test_errors_are_types(web: Web, space: Workspace) -> None:
    with pytest.raises(WebError, match="channel_not_found") as refused:
        await web.call("chat.postMessage", channel="C0NOWHERE", text="x")
    assert refused.value.code == "channel_not_found"
    space.faults.add(SlackFault("api", "chat.postMessage", "rate_limited", seconds=7))
    with pytest.raises(WebError) as limited:
        await web.call("chat.postMessage", channel="C0GPU", text="x")
    assert limited.value.retry_after_s == 7
    with pytest.raises(WebError, match="no more than 50 items") as blocks:
        await web.call("chat.postMessage", channel="C0GPU", text="x", blocks=[{"type": "divider"}] * 51)
    assert blocks.value.code == "invalid_blocks"


async def test_a_write_is_never_repeated(web: Web, space: Workspace) -> None:
    space.faults.add(SlackFault("api", "chat.postMessage", "lose_reply"))
    with pytest.raises(WebError, match="no_answer"):
        await web.call("chat.postMessage", channel="C0GPU", text="once")
    assert calls(space, "chat.postMessage") == 1


async def test_a_wrong_token_is_said(web: Web) -> None:
    other = Web(replace(web._settings, bot_token="xoxb-wrong"))
    with pytest.raises(WebError, match="invalid_auth"):
        await other.call("auth.test")
    await other.close()


async def test_the_environment_is_not_read(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-from-the-environment")
    fresh = Web(web._settings)
    assert (await fresh.call("auth.test"))["team_id"] == HOME
    await fresh.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bot_token": ""}, "bot token is empty"),
        ({"signing_secret": ""}, "signing secret"),
        ({"command": "gpu"}, "write one like /gpu"),
        ({"base_url": "slack.com"}, "ends in /"),
        ({"workers": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, str], said: str) -> None:
    good = SlackSettings(bot_token="xoxb-1", signing_secret="s")
    with pytest.raises(ValueError, match=said):
        replace(good, **changes)  # type: ignore[arg-type] # Each case knows its field.


def test_secrets_do_not_show() -> None:
    shown = repr(SlackSettings(bot_token="xoxb-canary", signing_secret="canary-secret", app_token="xapp-canary"))
    assert "canary" not in shown


async def test_a_command_on_the_server_asks_over_a_connection_of_its_own(
    space: Workspace, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    practice = Practice(space)
    async with practice.serve():
        named = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_SIGNING_SECRET": SECRET}
        for name, value in (*named.items(), ("GPU_SHOPPER_SLACK_API_URL", practice.api_url)):
            monkeypatch.setenv(name, value)
        for user, known, deleted in (("U0BOB", True, False), ("U0GONE", True, True), ("U0NOBODY", True, False)):
            facts = await in_process_people.looked_up(load(), Policy(), clock, Actor(ActorKind.SLACK, user, HOME))
            assert (facts.actor.id, facts.known, facts.is_deleted) == (user, known, deleted)


async def test_the_name_that_slack_shows_is_kept_with_each_look_up(
    web: Web, space: Workspace, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[tuple[str, str]] = []

    async def keep(user: str, name: str) -> None:
        kept.append((user, name))

    people = Directory(web, clock, Policy(), None, keep)
    await people.facts("U0BOB", HOME)
    await people.facts("U0BOB", HOME)
    await people.meet(["U0NOBODY", "U0CAROL"])
    assert kept == [("U0BOB", "bob"), ("U0CAROL", "carol")]
    assert "nobody could say who U0NOBODY is" in caplog.text


@pytest.mark.parametrize(
    ("person", "name"),
    [
        ({"profile": {"display_name": "al", "real_name": "Alice"}, "real_name": "Alice", "name": "alice"}, "al"),
        ({"profile": {"display_name": " ", "real_name": "Alice"}, "name": "alice"}, "Alice"),
        ({"profile": None, "real_name": 7, "name": "alice"}, "alice"),
        ({}, ""),
    ],
)
def test_which_of_the_names_slack_shows(person: dict[str, object], name: str) -> None:
    assert shown_name(person) == name
