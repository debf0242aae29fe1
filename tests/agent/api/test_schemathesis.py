"""schemathesis, every phase, against the API's own description: no 5xx, and nothing that it does not describe."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bot.agent.api.app import Api
from tests.agent.api.chat_stub import chat_server
from tests.agent.api.conftest import TOKEN
from tests.support.serving import serving

PROGRAM = str(Path(sys.executable).parent / "st")
#: What fits the description may still be no file of the workspace; the answer is 4xx with a sentence.
LEFT_OUT = "positive_data_acceptance"


@pytest.mark.slow
@pytest.mark.timeout(500)  # It makes thousands of calls, in a process of its own.
async def test_every_phase(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    (tmp_path / "programs").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))  # Generated commands find no program.
    examples = "100" if pytestconfig.getoption("--soak") else "15"
    config = tmp_path / "schemathesis.toml"
    config.write_text('[parameters]\n"query.follow" = false\n')  # A log that is followed does not end by itself.
    async with chat_server(api.folder), serving(api.app()) as url:
        arguments = ["--config-file", str(config), "run", f"{url}/node/v1/openapi.json", "--no-color", "--seed", "1"]
        arguments += ["-H", f"Authorization: Bearer {TOKEN}", "--max-examples", examples]
        arguments += ["--phases", "examples,coverage,fuzzing,stateful", "--exclude-checks", LEFT_OUT]
        run = await asyncio.create_subprocess_exec(
            PROGRAM, *arguments, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await run.communicate()
    report = said.decode()
    assert run.returncode == 0, report[-6000:]
    assert "Stateful" in report
    assert "6 selected / 6 total" in report
