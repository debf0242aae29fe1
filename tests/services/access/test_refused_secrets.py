"""What is refused for a secret in it is stored and shown nowhere, and an older job with one isn't repeated."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from bot.rules.jobs.stored import job_of, stored_job
from bot.services.requests.again import Again, again
from ledger.models import Request
from tests.api.door import ADA, JOB, code_of, opened
from tests.api.generated.ownership import read_rows
from tests.support.world import ALICE, BOB, CHANNEL, World

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"


async def everything(w: World) -> str:
    """All rows of the ledger, as text."""
    return str(await read_rows(w.ctx.db))


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("run", {"run": f"HF_TOKEN={TOKEN} python train.py"}),
        ("reason", {"reason": f"it needs {TOKEN}"}),
        ("checkpoint", {"checkpoint": f"https://ada:{TOKEN}@example.com/run/x.pt"}),
        ("words", {"words": f'1x4090 2h run="x --hub-token {TOKEN}"'}),
        ("words", {"words": f'1x4090 2h run="x --hub-token {TOKEN}'}),
    ],
)
async def test_rest_refuses_a_secret_and_stores_nothing(w: World, field: str, body: dict[str, Any]) -> None:
    async with opened(w) as door:
        key = await door.key("operator:ada")
        document = body if field == "words" else {**JOB, **body}
        refused = await door.call("POST", "/sessions", key, json=document)
        assert (refused.status_code, code_of(refused)) == (422, "secret_in_text")
        assert [one["field"] for one in refused.json()["fields"]] == [field]
        assert TOKEN not in refused.text
        assert TOKEN not in await everything(w)


async def test_a_masked_address_that_comes_back_is_refused(w: World) -> None:
    signed = "https://bucket.example.com/d.tar?X-Amz-Signature=0123456789abcdef"
    async with opened(w) as door:
        key = await door.key("operator:ada")
        request_id = await door.asked(key, run=f"curl -o d.tar '{signed}'", checkpoint=signed)
        job = (await door.request(key, request_id))["job"]
        assert ("[redacted]" in job["run"], "[redacted]" in job["checkpoint"]) == (True, True)
        sentence = "contains an address that was masked. Use `gpu-shopper again`, or paste the address anew."
        bodies: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("run", "run=", {**JOB, "run": job["run"]}),
            ("checkpoint", "checkpoint=", {**JOB, "checkpoint": job["checkpoint"]}),
            ("queue", "queue=", {**JOB, "queue": [job["run"], "b"]}),
            ("file_mounts", "file_mounts", {**JOB, "file_mounts": {"/data": job["checkpoint"]}}),
            ("words", "run=", {"words": f'1x4090 2h run="{job["run"]}"'}),
            ("words", "checkpoint=", {"words": f"1x4090 2h checkpoint={job['checkpoint']}"}),
        )
        before = await everything(w)
        for field, named, document in bodies:
            refused = await door.call("POST", "/sessions", key, json=document)
            assert (refused.status_code, code_of(refused)) == (422, "secret_in_text"), document
            assert refused.json()["fields"] == [{"field": field, "sentence": f"{named} {sentence}"}], refused.text
        assert before.count("[redacted]") == (await everything(w)).count("[redacted]")
        again_it = await door.call("POST", "/requests/again", key, json={"request": request_id})
        assert again_it.is_success, again_it.text


async def test_the_reason_of_more_time_and_of_a_rejection_is_refused_too(w: World) -> None:
    w.tune(approvers=(BOB.id, ADA.ref))
    async with opened(w) as door:
        key, atlas = await door.key("operator:ada"), await door.key("atlas", "operator:eve")
        request_id = await door.asked(atlas)
        refused = await door.call("POST", f"/requests/{request_id}/reject", key, json={"reason": f"no {TOKEN}"})
        assert code_of(refused) == "secret_in_text"
        assert TOKEN not in refused.text + await everything(w)
        running = await w.running()
        more = {"hours": 1, "reason": f"for {TOKEN}"}
        refused = await door.call("POST", f"/sessions/{running}/extend", key, json=more)
        assert code_of(refused) == "secret_in_text"
        assert TOKEN not in refused.text + await everything(w)


async def test_a_job_from_before_with_a_secret_is_not_repeated(w: World) -> None:
    request_id = await w.running(run="python train.py", hours=Decimal(1))
    async with w.ctx.db.write() as tx:
        row = await tx.get_one(Request, request_id)
        job = replace(job_of(row.job), run=f"HF_TOKEN={TOKEN} python train.py")
        await tx.execute(update(Request).where(Request.id == request_id).values(job=stored_job(job)))
    reply = await again(w.ctx, Again("again-1", ALICE, CHANNEL))
    assert (reply.ok, reply.code) == (False, "secret_in_text")
    assert reply.sentence == (
        "run= contains a Hugging Face token. "
        "Store it with `gpu-shopper secret set NAME`, add secrets=NAME, and read it as $NAME."
    )
