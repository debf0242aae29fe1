"""A command whose COMMIT loses its connection twice may be stored or not, and its sender reads exactly that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.slack.app import MAY_BE_STORED, SlackApp
from ledger.core.inbox import InboxWriter
from ledger.engine.db import Database
from tests.slack import signing
from tests.slack.conftest import Stage
from tests.support.commit_cuts import Way, commit_cuts

COMMAND = signing.command_body('provision 1x4090 2h for="once"')


@pytest.mark.slow
async def test_a_database_that_goes_away_at_the_commit_leaves_it_open_whether_a_command_is_done(
    stage: Stage, pg_db_url: str, tmp_path: Path
) -> None:
    async with commit_cuts(pg_db_url, tmp_path / "pg") as (url, cuts):
        behind = Database(url)
        door = SlackApp(replace(stage.ctx, inbox=InboxWriter(behind, timedelta(seconds=60))), stage.settings)
        cuts.choose = lambda _wrote: Way.UNANSWERED
        answer = await signing.post(door.asgi, COMMAND, signing.headers(COMMAND, stage.w.clock))
        assert answer.json()["text"] == MAY_BE_STORED
        await door.stop()
        await behind.close()
