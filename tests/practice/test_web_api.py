"""The Web API over real HTTP: encodings, refusals, and what each method does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.practice.app import Practice
from bot.practice.model import Channel
from bot.practice.web_api.people import approvers
from bot.practice.workspace import Workspace
from tests.practice.echo_app import APP_TOKEN, BOT_TOKEN, modal, offer_blocks, plain

BEARER = {"Authorization": f"Bearer {BOT_TOKEN}"}


@pytest.fixture
async def http(practice: Practice) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=practice.api_url, trust_env=False, headers=BEARER) as client:
        yield client


@pytest.fixture
def client(practice: Practice) -> AsyncWebClient:
    return AsyncWebClient(token=BOT_TOKEN, base_url=practice.api_url)


async def error_of(call: Any) -> dict[str, Any]:
    with pytest.raises(SlackApiError) as caught:
        await call
    data = caught.value.response.data
    assert isinstance(data, dict)
    return data


async def test_arguments_of_every_encoding_are_merged(http: httpx.AsyncClient) -> None:
    content = {"text": "hi", "blocks": json.dumps([{"type": "divider"}])}
    answers = [
        await http.post("chat.postMessage", json={"channel": "#gpu", **content}),
        await http.post("chat.postMessage", data={"channel": "C0GPU", **content}),
        await http.post("chat.postMessage", files={"channel": (None, "C0GPU"), "text": (None, "hi")}),
        await http.post("chat.postMessage", params={"channel": "gpu"}, data=content),
        await http.post("chat.postMessage", params={"channel": "U0ALICE", "text": "hi"}),
        await http.post("chat.postMessage", json={"channel": "C0GPU", "text": "hi", "token": "ignored"}),
    ]
    assert [a.json()["ok"] for a in answers] == [True] * 6
    assert answers[0].json()["message"]["blocks"][0]["type"] == "divider"
    assert answers[4].json()["channel"] == "D0ALICE"
    assert "chat:write" in answers[0].headers["x-oauth-scopes"]


async def test_reading_methods_take_get_and_no_json(http: httpx.AsyncClient) -> None:
    assert (await http.get("users.info", params={"user": "U0BOB"})).json()["user"]["name"] == "bob"
    assert (await http.post("users.info", data={"user": "U0BOB"})).json()["ok"]
    refused = (await http.post("users.info", json={"user": "U0BOB"})).json()
    assert refused["error"] == "invalid_arguments"
    assert "missing required field: user" in refused["response_metadata"]["messages"][0]


@pytest.mark.parametrize(
    ("method", "body", "error"),
    [
        ("chat.fly", {}, "unknown_method"),
        ("chat.postMessage", {"channel": "C0GPU", "colour": "red", "text": "x"}, "invalid_arguments"),
        ("chat.postMessage", {"text": "x"}, "invalid_arguments"),
        ("chat.postMessage", {"channel": "C0GPU"}, "no_text"),
        ("chat.postMessage", {"channel": "C0GPU", "text": "x" * 40_001}, "msg_too_long"),
        ("chat.postMessage", {"channel": "C0GPU", "text": ["x"]}, "invalid_arguments"),
        ("chat.postMessage", {"channel": "C0GPU", "blocks": "[broken"}, "invalid_blocks_format"),
        ("chat.postMessage", {"channel": "C0GPU", "text": "x", "thread_ts": "1.2"}, "thread_not_found"),
        ("chat.postMessage", {"channel": "C0GPU", "text": "x", "metadata": "[]"}, "invalid_metadata_format"),
        (
            "chat.postMessage",
            {"channel": "C0GPU", "text": "x", "metadata": {"event_type": "a"}},
            "invalid_metadata_schema",
        ),
        ("chat.postMessage", {"channel": "C0GENERAL", "text": "x"}, "not_in_channel"),
        ("chat.postMessage", {"channel": "C0SECRET", "text": "x"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "C0OLD", "text": "x"}, "is_archived"),
        ("chat.postMessage", {"channel": "C0NOWHERE", "text": "x"}, "channel_not_found"),
        ("chat.postEphemeral", {"channel": "C0GPU", "user": "U0NOBODY", "text": "x"}, "user_not_found"),
        ("chat.update", {"channel": "C0GPU", "ts": "1.2", "text": "x"}, "message_not_found"),
        ("chat.delete", {"channel": "C0GPU", "ts": "1.2"}, "message_not_found"),
        ("conversations.open", {"users": "U0BOB"}, "missing_scope"),
        ("reactions.add", {"channel": "C0GPU", "timestamp": "1", "name": "eyes"}, "missing_scope"),
        ("views.open", {"trigger_id": "1.2", "view": modal()}, "invalid_trigger_id"),
        ("views.update", {"view_id": "V1", "view": modal()}, "not_found"),
        ("views.publish", {"user_id": "U0NOBODY", "view": {"type": "home", "blocks": []}}, "user_not_found"),
        ("views.publish", {"user_id": "U0BOB", "view": "words"}, "invalid_arguments"),
        ("views.publish", {"user_id": "U0BOB", "view": modal()}, "invalid_arguments"),
        ("files.getUploadURLExternal", {"filename": "a.png", "length": "many"}, "invalid_arguments"),
        ("files.completeUploadExternal", {"files": "[]"}, "invalid_arguments"),
        ("files.completeUploadExternal", {"files": [{"id": "F1"}]}, "file_not_found"),
        ("apps.connections.open", {}, "not_allowed_token_type"),
    ],
)
async def test_refusals(
    http: httpx.AsyncClient, workspace: Workspace, method: str, body: dict[str, Any], error: str
) -> None:
    workspace.add_channel(Channel("C0SECRET", "secret", {"U0ALICE"}, is_private=True))
    workspace.add_channel(Channel("C0OLD", "old", {"U0GPUBOT"}, archived=True))
    answer = await http.post(method, json=body)
    assert answer.status_code == 200
    assert (answer.json()["ok"], answer.json()["error"]) == (False, error)


async def test_a_missing_scope_says_which_one(http: httpx.AsyncClient) -> None:
    answer = (await http.post("conversations.open", params={"users": "U0BOB"})).json()
    assert answer["needed"] == "im:write"
    assert "chat:write" in answer["provided"].split(",")


@pytest.mark.parametrize(
    ("headers", "error"),
    [({"Authorization": ""}, "not_authed"), ({"Authorization": "Bearer xoxb-wrong"}, "invalid_auth")],
)
async def test_tokens(http: httpx.AsyncClient, headers: dict[str, str], error: str) -> None:
    assert (await http.post("auth.test", headers=headers)).json()["error"] == error
    assert (await http.post("auth.test", headers={"Authorization": f"Bearer {APP_TOKEN}"})).json()["error"] == (
        "not_allowed_token_type"
    )
    assert (await http.post("auth.test", headers={"Authorization": ""}, data={"token": BOT_TOKEN})).json()["ok"]


async def test_verbs_and_bodies(http: httpx.AsyncClient) -> None:
    get = (await http.get("chat.postMessage", params={"channel": "C0GPU", "text": "x"})).json()
    assert get["error"] == "invalid_http_method"
    kinds = {
        "invalid_json": ("application/json", b"{"),
        "json_not_object": ("application/json", b"[]"),
        "invalid_post_type": ("text/plain", b"x"),
    }
    for error, (kind, body) in kinds.items():
        answer = await http.post("chat.postMessage", content=body, headers={"content-type": kind})
        assert answer.json()["error"] == error


async def test_without_strictness_unknown_arguments_pass(http: httpx.AsyncClient, workspace: Workspace) -> None:
    workspace.strict_api = False
    assert (await http.get("chat.postMessage", params={"channel": "C0GPU", "text": "x", "colour": "red"})).json()["ok"]


async def test_invalid_blocks_are_answered_as_slack_does(client: AsyncWebClient) -> None:
    data = await error_of(client.chat_postMessage(channel="C0GPU", text="x", blocks=[{"type": "divider"}] * 51))
    assert data["error"] == "invalid_blocks"
    assert data["errors"] == ["no more than 50 items allowed [json-pointer:/blocks]"]
    assert data["response_metadata"]["messages"] == ["[ERROR] no more than 50 items allowed [json-pointer:/blocks]"]
    twice = [{"type": "actions", "elements": [{"type": "button", "action_id": "a", "text": plain("A")}] * 2}]
    data = await error_of(client.chat_postMessage(channel="C0GPU", text="x", blocks=twice))
    assert "action_id must be unique" in data["errors"][0]


async def test_a_message_lives_and_goes(client: AsyncWebClient, practice: Practice) -> None:
    metadata = {"event_type": "offer", "event_payload": {"request": "r1"}}
    posted = await client.chat_postMessage(channel="C0GPU", text="one", blocks=offer_blocks(), metadata=metadata)
    ts = posted["ts"]
    kept = await client.chat_update(channel="C0GPU", ts=ts, text="two")
    assert len(kept["message"]["blocks"]) == 2
    cleared = await client.chat_update(channel="C0GPU", ts=ts, text="three", blocks=[], metadata=metadata)
    assert "blocks" not in cleared["message"]
    assert cleared["message"]["metadata"] == metadata
    assert (await error_of(client.chat_update(channel="C0GPU", ts=ts, text="x" * 4001)))["error"] == "msg_too_long"
    link = await client.chat_getPermalink(channel="C0GPU", message_ts=ts)
    assert ts.replace(".", "") in link["permalink"]
    await client.chat_delete(channel="C0GPU", ts=ts)
    assert practice.driver.channel_messages("#gpu") == []
    assert (await error_of(client.chat_update(channel="C0GPU", ts=ts, text="x")))["error"] == "message_not_found"
    assert (await error_of(client.chat_getPermalink(channel="C0GPU", message_ts=ts)))["error"] == "message_not_found"


async def test_only_own_public_messages_can_be_changed(client: AsyncWebClient, practice: Practice) -> None:
    said = await practice.driver.as_("alice").say("mine")
    assert (await error_of(client.chat_update(channel="C0GPU", ts=said.ts, text="x")))["error"] == "cant_update_message"
    assert (await error_of(client.chat_delete(channel="C0GPU", ts=said.ts)))["error"] == "cant_delete_message"
    private = await client.chat_postEphemeral(channel="C0GPU", user="U0ALICE", text="psst")
    data = await error_of(client.chat_update(channel="C0GPU", ts=private["message_ts"], text="x"))
    assert data["error"] == "message_not_found"


async def test_ephemeral_messages_need_the_reader_in_the_channel(client: AsyncWebClient, workspace: Workspace) -> None:
    workspace.channels["C0GPU"].members.discard("U0DAVE")
    data = await error_of(client.chat_postEphemeral(channel="C0GPU", user="U0DAVE", text="psst"))
    assert data["error"] == "user_not_in_channel"


async def test_people_and_groups(client: AsyncWebClient, workspace: Workspace) -> None:
    me = await client.auth_test()
    assert (me["user_id"], me["bot_id"], me["team_id"]) == ("U0GPUBOT", "B0GPUBOT", "T0PRACTICE")
    assert (await client.users_lookupByEmail(email="BOB@practice.example"))["user"]["id"] == "U0BOB"
    assert (await error_of(client.users_lookupByEmail(email="no@one.example")))["error"] == "users_not_found"
    assert (await error_of(client.users_info(user="U1")))["error"] == "user_not_found"
    erin = (await client.users_info(user="U0ERIN"))["user"]
    assert (erin["is_stranger"], erin["team_id"]) == (True, "T0PARTNER")
    pages = [page["members"] async for page in await client.users_list(limit=3)]
    assert sum(map(len, pages)) == len(workspace.users)
    assert len(pages[0]) == 3
    assert (await error_of(client.users_list(cursor="dXNlcg==")))["error"] == "invalid_cursor"
    group = (await client.usergroups_list(include_users=True))["usergroups"][0]
    assert (group["handle"], group["users"]) == ("gpu-approvers", ["U0BOB", "U0CAROL"])
    assert "users" not in (await client.usergroups_list())["usergroups"][0]
    assert (await client.usergroups_users_list(usergroup=group["id"]))["users"] == ["U0BOB", "U0CAROL"]
    assert (await error_of(client.usergroups_users_list(usergroup="S1")))["error"] == "no_such_subteam"
    assert [user.name for user in approvers(workspace, "@gpu-approvers")] == ["bob", "carol"]


async def test_emails_are_hidden_without_their_scope(
    client: AsyncWebClient, practice: Practice, workspace: Workspace
) -> None:
    scopes = workspace.manifest.scopes
    assert scopes is not None
    object.__setattr__(workspace.manifest, "scopes", scopes - {"users:read.email"})
    assert "email" not in (await client.users_info(user="U0BOB"))["user"]["profile"]


async def test_conversations(client: AsyncWebClient, workspace: Workspace) -> None:
    object.__setattr__(workspace.manifest, "scopes", None)
    workspace.add_channel(Channel("C0SECRET", "secret", {"U0ALICE"}, is_private=True))
    assert (await client.conversations_open(users="U0BOB"))["channel"]["id"] == "D0BOB"
    assert (await error_of(client.conversations_open(users="U1")))["error"] == "user_not_found"
    assert (await error_of(client.api_call("conversations.open")))["error"] == "users_list_not_supplied"
    assert (await error_of(client.conversations_open(users="U0BOB,U0CAROL")))["ok"] is False
    assert (await client.conversations_info(channel="C0GPU"))["channel"]["is_member"]
    assert (await client.conversations_info(channel="D0BOB"))["channel"]["user"] == "U0BOB"
    assert (await error_of(client.conversations_info(channel="gpu")))["error"] == "channel_not_found"
    names = [c["name"] for c in (await client.conversations_list(types="public_channel,private_channel"))["channels"]]
    assert names == ["gpu", "general"]
    assert len((await client.conversations_list(types="im"))["channels"]) == 4
    assert "U0ALICE" in (await client.conversations_members(channel="C0GPU"))["members"]
    parent = await client.chat_postMessage(channel="C0GPU", text="parent")
    await client.chat_postMessage(channel="C0GPU", text="reply", thread_ts=parent["ts"])
    history = await client.conversations_history(channel="C0GPU", limit=1)
    assert [m["text"] for m in history["messages"]] == ["parent"]
    replies = await client.conversations_replies(channel="C0GPU", ts=parent["ts"])
    assert [m["text"] for m in replies["messages"]] == ["parent", "reply"]
    assert (await error_of(client.conversations_replies(channel="C0GPU", ts="1.2")))["error"] == "thread_not_found"
    assert (await error_of(client.conversations_history(channel="C0GENERAL")))["error"] == "not_in_channel"
    await client.reactions_add(channel="C0GPU", timestamp=parent["ts"], name=":eyes:")
    data = await error_of(client.reactions_add(channel="C0GPU", timestamp=parent["ts"], name="eyes"))
    assert data["error"] == "already_reacted"
    assert (await error_of(client.reactions_add(channel="C0GPU", timestamp=parent["ts"], name=":")))["error"] == (
        "invalid_name"
    )


async def test_public_posting_needs_its_scope(client: AsyncWebClient, workspace: Workspace) -> None:
    scopes = workspace.manifest.scopes
    assert scopes is not None
    object.__setattr__(workspace.manifest, "scopes", scopes | {"chat:write.public"})
    assert (await client.chat_postMessage(channel="#general", text="x"))["ok"]


async def test_files_are_uploaded_in_three_steps(
    client: AsyncWebClient, practice: Practice, http: httpx.AsyncClient
) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + b"0" * 10
    await client.files_upload_v2(
        channel="C0GPU", filename="chart.png", content=picture, title="Chart", initial_comment="See", alt_txt="A chart"
    )
    message = practice.driver.channel_messages("#gpu")[-1]
    assert (message.text, message.files[0]["title"]) == ("See", "Chart")
    assert message.files[0]["mimetype"] == "image/png"
    shown = await http.get(message.files[0]["url_private"])
    assert (shown.content, shown.headers["content-type"]) == (picture, "image/png")
    file = next(iter(practice.workspace.files.values()))
    assert (await error_of(client.files_completeUploadExternal(files=[{"id": file.id}])))["error"] == "file_not_found"
    where = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    assert (await http.post(where["upload_url"], content=b"four")).status_code == 404
    assert (await http.post(where["upload_url"], content=b"abc")).text == "OK - 3"
    assert (await http.get(f"{practice.workspace.base_url}/practice/files/{where['file_id']}")).status_code == 404
    await client.files_completeUploadExternal(files=[{"id": where["file_id"], "title": "t"}], channel_id="U0BOB")
    shown = await http.get(f"{practice.workspace.base_url}/practice/files/{where['file_id']}")
    assert shown.headers["content-type"] == "application/octet-stream"
    data = await error_of(client.files_getUploadURLExternal(filename="a", length=1, alt_txt="x" * 1001))
    assert data["error"] == "alt_txt_too_large"


async def test_apps_without_a_home_or_messages_tab(client: AsyncWebClient, practice: Practice) -> None:
    object.__setattr__(practice.workspace.manifest, "home_tab", False)
    object.__setattr__(practice.workspace.manifest, "messages_tab", False)
    data = await error_of(client.views_publish(user_id="U0BOB", view={"type": "home", "blocks": []}))
    assert data["error"] == "not_enabled"
    assert (await error_of(client.chat_postMessage(channel="U0BOB", text="x")))["error"] == "messages_tab_disabled"
    assert (await practice.driver.as_("bob").open_home()).error == "not_enabled"
