"""Ports that a job asks for: opened by the clouds that can, a tunnel elsewhere, and no offer where neither works."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.api.views import session_out
from bot.cli.terminal.views import session_details
from bot.rules.access.sight import Sight
from bot.rules.checkpoints.verification import NOTHING_PROTECTS
from bot.rules.jobs.stored import job_of, stored_job
from bot.slack.blocks.job import details
from bot.slack.blocks.session import session_ready_and_ended
from tests.support.world import World

PORTS = ("8888/http", "6006/tcp")


@pytest.mark.parametrize(
    ("cloud", "page", "plain"),
    [
        ("vast", r"http://127\.0\.0\.1:\d+", r"127\.0\.0\.1:\d+"),
        ("runpod", r"https://\w+-8888\.proxy\.runpod\.net", r"127\.0\.0\.1:\d+"),
        ("lambda", None, None),
        ("tensordock", None, None),
    ],
)
async def test_each_cloud_opens_what_was_asked_for_or_a_tunnel_does(
    w: World, cloud: str, page: str | None, plain: str | None
) -> None:
    request_id = await w.running(candidates=(cloud,), ports=PORTS)
    (row,) = (await w.books()).instances
    view = await w.session(row.session_id)
    out = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
    assert out.ssh is not None
    http, tcp = out.ssh.ports
    ready = session_ready_and_ended.ready(view, "/gpu").text
    assert NOTHING_PROTECTS in ready
    view.request.job = stored_job(replace(job_of(view.request.job), checkpoint="hf://org/model"))
    assert NOTHING_PROTECTS not in session_ready_and_ended.ready(view, "/gpu").text
    printed = "\n".join(session_details(out).sentences)
    assert "ports 8888/http, 6006/tcp" in details(job_of(view.request.job))
    if page is None or plain is None:
        by = f"gpu-shopper open {request_id[-6:]} 8888"
        assert (http.address, tcp.address, row.ports) == (None, None, None)
        assert f"Ports 8888, 6006: through a tunnel, `{by}` in a terminal" in ready
        assert f"Ports 8888, 6006 are reached through a tunnel: `{by}`" in printed
        return
    assert (re.fullmatch(page, http.address or ""), re.fullmatch(plain, tcp.address or "")) != (None, None)
    assert f"Port 8888: <{http.address}>" in ready
    assert f"Port 6006: `{tcp.address}`" in ready
    assert f"Port 8888: {http.address}\nPort 6006: {tcp.address}" in printed
    # Nobody but the owner reads where they are.
    assert session_out(w.ctx, view, w.clock.now(), Sight.ALL).ssh is None
    async with w.ctx.db.write() as tx:
        row = await tx.get_one(type(row), row.id)
        row.ports = {"8888": "evil|host> `x`", "6006": ""}
    odd = session_out(w.ctx, await w.session(row.session_id), w.clock.now(), Sight.OWN).ssh
    assert odd is not None
    assert [one.address for one in odd.ports] == [None, None]


async def test_a_cloud_without_ports_has_no_offer_and_says_so(w: World) -> None:
    reply = await w.ask(candidates=("kaggle",), ports=PORTS)
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert view.request.state == "unavailable"
    quoted = [*(view.quote.excluded if view.quote else []), {"sentence": view.request.outcome}]
    assert any("that cloud opens no ports" in str(one["sentence"]) for one in quoted), quoted


async def test_a_job_without_ports_opens_none(w: World) -> None:
    await w.running(candidates=("vast",))
    (row,) = (await w.books()).instances
    assert row.ports is None
    assert "Port" not in session_ready_and_ended.ready(await w.session(row.session_id), "/gpu").text
