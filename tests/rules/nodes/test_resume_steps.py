"""The step that fetches a save: the real script, with the stores' own clients over real HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.rules.nodes.resume_steps import fetch_script
from tests.support.stores import Shelf, served

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


async def fetched(shelf: Shelf, place: str, folder: Path, **variables: str) -> tuple[int, str]:
    """Run the script on a machine whose agent wrote this place to `asks`; its exit code and what it printed."""
    (folder / "asks").write_text(f"save\nresume={place}\nresume_step=9\n", encoding="utf-8")
    async with served(shelf) as stores:
        own = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "STARTUP_FOLDER": str(folder),
            "GS_ENDPOINT_URL": stores.gs_url,
            "AWS_ENDPOINT_URL_S3": stores.gs_url,
            "AWS_DEFAULT_REGION": "us-east-1",
            **variables,
        }
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            fetch_script(reads_secrets="", left_out=77),
            env=own,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()


def shelf_of(*, public: bool = False) -> Shelf:
    """Two steps of a run, and another run's files beside it."""
    shelf = Shelf(public=public)
    for path in ("run/step-9/model.pt", "run/step-9/optim/state.pt", "run/step-90/model.pt", "other.pt"):
        shelf.put(path, 1_000, NOW)
    return shelf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "public", "variables"),
    [
        ("gs", False, {"GS_ACCESS_KEY_ID": "GOOG1EX", "GS_SECRET_ACCESS_KEY": "sssssss"}),
        ("gs", True, {}),
        ("s3", False, {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "sssssss"}),
    ],
)
async def test_a_save_is_fetched_whole(tmp_path: Path, scheme: str, variables: dict[str, str], *, public: bool) -> None:
    shelf = shelf_of(public=public)
    code, said = await fetched(shelf, f"{scheme}://bucket/run/step-9", tmp_path, **variables)
    assert code == 0, said
    there = {str(one.relative_to(tmp_path / "resume")) for one in (tmp_path / "resume").rglob("*") if one.is_file()}
    assert there == {".complete", "run/step-9/model.pt", "run/step-9/optim/state.pt"}
    assert (tmp_path / "resume/run/step-9/model.pt").read_bytes() == shelf.content("run/step-9/model.pt")
    assert (tmp_path / "resume_from").read_text(encoding="utf-8") == f"{scheme}://bucket/run/step-9"
    assert (tmp_path / "resume_step").read_text(encoding="utf-8") == "9\n"


@pytest.mark.slow
async def test_a_save_that_is_not_there_is_not_on_the_machine(tmp_path: Path) -> None:
    code, said = await fetched(shelf_of(public=True), "gs://bucket/run/step-7", tmp_path)
    assert (code, "There is no file at bucket/run/step-7." in said) == (1, True), said
    assert not (tmp_path / "resume/.complete").exists()


@pytest.mark.slow
async def test_a_file_with_another_hash_than_its_stores_fails_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = shelf_of(public=True)
    listed = shelf.etag("run/step-9/model.pt")
    monkeypatch.setattr(Shelf, "etag", lambda *_: listed)
    code, said = await fetched(shelf, "gs://bucket/run/step-9", tmp_path)
    assert code == 1
    assert "run/step-9/optim/state.pt differs from its store" in said
    assert not (tmp_path / "resume/.complete").exists()


@pytest.mark.slow
async def test_a_bucket_that_may_not_be_read_fails_the_step(tmp_path: Path) -> None:
    code, said = await fetched(shelf_of(), "gs://bucket/run/step-9", tmp_path)
    assert code != 0
    assert "403" in said


@pytest.mark.slow
async def test_without_credentials_the_job_fetches_the_save_itself(tmp_path: Path) -> None:
    code, said = await fetched(shelf_of(), "s3://bucket/run/step-9", tmp_path, AWS_EC2_METADATA_DISABLED="true")
    assert (code, "so the job fetches the save" in said) == (77, True), said
    assert not (tmp_path / "resume/.complete").exists()
    assert (tmp_path / "resume_from").read_text(encoding="utf-8") == "s3://bucket/run/step-9"
