"""A bucket's folder is copied to a real machine by the real rclone, with the credentials of the job's secrets."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from ledger.kernel.states import SessionState
from ledger.models import Node
from tests.rules.nodes.rclone import rclone_folder
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.scenarios.nodes.test_github_action import typed
from tests.scenarios.nodes.test_jobs import SPEED
from tests.support.stores import Shelf, served

pytestmark = pytest.mark.slow
SECRET = "canary7f3sss"
RUN = "find . -name '*.bin' | sort >found; sha256sum <b/c.bin >hash; until [ -e end ]; do sleep 0.1; done"
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


async def handed_over(here: NodeTown, folder: Path, job: dict[str, Any], secrets: dict[str, str]) -> None:
    """Store a program's secrets, hand over its job as a file, and let Bob approve it."""
    await asyncio.to_thread(folder.mkdir)
    environment = {**here.town.environment, "HOME": str(folder)}
    made = await typed(folder, environment, "keys", "create", "atlas", "--owner", "operator:ada", "--json")
    url, token = environment["GPU_SHOPPER_NODE_URL"], json.loads(made)["token"]
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        for name, value in secrets.items():
            (await client.put(f"/api/v1/secrets/{name}", json={"value": value})).raise_for_status()
    await asyncio.to_thread((folder / "job.yaml").write_text, yaml.safe_dump({**job, "secrets": [*secrets]}))
    await typed(folder, environment | {"GPU_SHOPPER_URL": url, "GPU_SHOPPER_API_KEY": token}, "run", "job.yaml")
    await here.town.approve()


def steps(row: Node) -> list[dict[str, Any]]:
    """The steps of the start-up that its agent reported."""
    return list(row.report.get("steps", ()))


async def test_a_folder_of_a_bucket_is_on_the_machine_before_the_command_starts(build: Build, tmp_path: Path) -> None:
    rclone, shelf, data = rclone_folder() / "rclone", Shelf(page=2), tmp_path / "files/data"
    for path in ("set/a.bin", "set/b/c.bin", "other/d.bin"):
        shelf.put(path, 10_000, NOW)
    expected = hashlib.sha256(shelf.content("set/b/c.bin")).hexdigest()
    async with served(shelf) as stores, build("vast", {"done_grace_s": 3}, clock_speed=SPEED, confined=False) as here:
        place = here.town
        job = {
            "resources": {"gpu": place.clouds[place.cloud].STAPLE},
            "hours": "2h",
            "candidates": [place.cloud],
            "file_mounts": {str(data): "s3://bucket/set"},
            "run": f"cd {data} && {RUN}",
        }
        keys = {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL_S3": stores.gs_url}
        await handed_over(here, tmp_path / "program", job, keys)
        await here.until(lambda: here.nodes.running)
        # Its image has rclone, so that no test installs a package on this computer.
        (here.node().root / "bin/rclone").symlink_to(rclone)
        await here.until(lambda: (data / "hash").exists() and (data / "hash").read_text())
        assert (data / "hash").read_text().split()[0] == expected
        assert (data / "found").read_text().split() == ["./a.bin", "./b/c.bin"]
        assert any("AKIAX" in one for one in shelf.asked)
        await here.row_where(lambda row: ("files", "done") in [(one["name"], one["state"]) for one in steps(row)])
        assert SECRET not in here.read("opt/gpu-shopper/startup.log")
        kept = await asyncio.to_thread(lambda: [str(one) for one in here.node().root.rglob("rclone.conf")])
        assert kept == []
        (data / "end").touch()
        await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
        await place.comes_to_rest()
        await here.nothing_left()
