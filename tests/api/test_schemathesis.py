"""schemathesis, every phase, against the served application: no 5xx, nothing that the schema does not say."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from tests.api.door import ADA
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import BOB, checked_world

PROGRAM = str(Path(sys.executable).parent / "st")
BEN = Actor(ActorKind.OPERATOR, "ben")
#: What fits a schema may still be no GPU or no time; the answer is 422 with a sentence, as documented.
LEFT_OUT = "positive_data_acceptance"
#: What a body that breaks the schema is answered. One that breaks it by its length may be too large to be read.
REFUSALS = """[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""


@pytest.mark.slow
@pytest.mark.timeout(500)  # It calls every route thousands of times, in a process of its own.
async def test_every_phase(
    sqlite_db: Database, clock: SteppedClock, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    examples = "50" if pytestconfig.getoption("--soak") else "4"
    async with checked_world(sqlite_db, clock) as w:
        w.tune(approvers=(BOB.id, BEN.ref), max_open_requests_per_user=10_000, max_requests_per_hour=100_000)
        request_id = await w.running(BEN)
        command = NewKey(BEN.ref, scopes=("admin", "approvals:write", "metrics:read"))
        made = await api_keys.create(sqlite_db, w.ctx.labels, command, ADA, clock.now())
        settings = tmp_path / "schemathesis.toml"
        known = {
            "path.request": request_id,
            "path.session": request_id,
            "path.cloud": "vast",
            "path.webhook": f"whk_{'0' * 16}",
        }
        parameters = [f'"{name}" = "{value}"' for name, value in known.items()]
        settings.write_text("\n".join([REFUSALS, "[parameters]", *parameters]))
        patient = ApiSettings("C0GPU", calls_per_minute=10**6, wrong_keys_per_minute=10**6)
        async with serving(build_api(Dependencies(w.ctx, patient), {})) as url:
            arguments = ["--config-file", str(settings), "run", f"{url}/openapi.json", "--no-color", "--seed", "1"]
            arguments += ["-H", f"Authorization: Bearer {made.data['token']}", "--max-examples", examples]
            arguments += ["--exclude-path", "/api/v1/events"]  # It does not end by itself.
            arguments += ["--phases", "examples,coverage,fuzzing,stateful", "--exclude-checks", LEFT_OUT]
            run = await asyncio.create_subprocess_exec(
                PROGRAM, *arguments, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            said, _ = await run.communicate()
        report = said.decode()
        assert run.returncode == 0, report[-6000:]
        assert "Stateful" in report
        await w.settle()
