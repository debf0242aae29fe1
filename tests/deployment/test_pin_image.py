"""The base image's digest, from a registry that asks for a token; and nothing where it can't be had."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.deployment import pin_image
from tests.deployment.pin_image import INDEXES, ROOT
from tests.support.serving import serving

TAG = "python:3.12-slim-bookworm"
DOCKERFILE = f"# syntax=docker/dockerfile:1\nARG PYTHON={TAG}\nFROM ${{PYTHON}} AS build\nFROM ${{PYTHON}}\n"
SCOPE = "repository:library/python:pull"


@dataclass
class Registry:
    """A registry of Docker's protocol, version 2, which answers only with a token that it gave."""

    index: bytes = json.dumps({"schemaVersion": 2, "manifests": [{"digest": "sha256:1"}]}).encode()
    kind: str = INDEXES[0]
    says: str | None = None
    status: int = 200
    realm: str = "{url}/token"
    token: str | None = "t0ken"
    asked: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """The digest of what it sends."""
        return f"sha256:{hashlib.sha256(self.index).hexdigest()}"

    async def manifest(self, request: Request) -> Response:
        """Send the index to a caller with a token, and say to others where to get one."""
        self.asked.append(request.headers.get("authorization", ""))
        if self.asked[-1] != f"Bearer {self.token}":
            realm = self.realm.format(url=str(request.base_url).rstrip("/"))
            challenge = f'Bearer realm="{realm}",service="registry.test",scope="{SCOPE}"'
            return Response(status_code=401, headers={"WWW-Authenticate": challenge})
        assert INDEXES[0] in request.headers["accept"]
        headers = {"Docker-Content-Digest": self.says or self.digest, "Content-Type": self.kind}
        return Response(self.index, self.status, headers)

    async def give(self, request: Request) -> Response:
        """Give a token for reading this image."""
        assert dict(request.query_params) == {"service": "registry.test", "scope": SCOPE}
        return JSONResponse({"token": self.token} if self.token else {})

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve it on this machine."""
        routes = [
            Route("/v2/library/python/manifests/3.12-slim-bookworm", self.manifest),
            Route("/token", self.give),
        ]
        async with serving(Starlette(routes=routes)) as url:
            yield url


async def run(file: Path, url: str) -> int:
    return await asyncio.to_thread(pin_image.main, ["--file", str(file), "--registry", url])


def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A Dockerfile that names its base image by a tag."""
    path = tmp_path / "Dockerfile"
    path.write_text(DOCKERFILE)
    return path


@pytest.mark.parametrize("kind", INDEXES)
async def test_the_digest_is_written_behind_the_tag_and_renewed(
    file: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = Registry(kind=kind)
    async with registry.served() as url:
        assert await run(file, url) == 0
        first = f"{TAG}@{registry.digest}"
        assert text(file) == DOCKERFILE.replace(TAG, first)
        assert registry.asked == ["", "Bearer t0ken"]
        assert capsys.readouterr().out == f"Dockerfile now builds on {first}.\n"
        assert await run(file, url) == 0
        assert capsys.readouterr().out == "Dockerfile names the newest digest already.\n"
        registry.index += b" "
        assert await run(file, url) == 0
        assert text(file) == DOCKERFILE.replace(TAG, f"{TAG}@{registry.digest}")


@pytest.mark.parametrize(
    ("registry", "why"),
    [
        (Registry(status=503), "No registry answered: "),
        (Registry(token=None), "it gave no token"),
        (Registry(realm="file:///etc/passwd?"), "it asks for a token from no address that can be trusted"),
        (Registry(says=f"sha256:{'0' * 64}"), f"The registry says that {TAG} is sha256:{'0' * 64}, and sends "),
        (
            Registry(kind="application/vnd.oci.image.manifest.v1+json"),
            f"The registry has no index of {TAG} for several processors, so it can't be pinned.",
        ),
        (Registry(index=b"x" * (pin_image.MOST_BYTES + 1)), "its answer is too long"),
    ],
)
async def test_what_is_no_digest_changes_nothing_and_is_said(
    file: Path, registry: Registry, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with registry.served() as url:
        assert await run(file, url) == 1
    said = capsys.readouterr().err
    assert why in said
    assert said.endswith(" Dockerfile is unchanged.\n")
    assert text(file) == DOCKERFILE


async def test_no_registry_at_all_changes_nothing_and_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Registry().served() as url:
        gone = url
    assert await run(file, gone) == 1
    assert capsys.readouterr().err.startswith(f"No registry answered: {urlsplit(gone).netloc} (")
    assert text(file) == DOCKERFILE


async def test_the_projects_own_dockerfile_can_be_pinned(tmp_path: Path) -> None:
    own, registry = text(ROOT / "Dockerfile"), Registry()
    copy = tmp_path / "Dockerfile"
    copy.write_text(own)
    async with registry.served() as url:
        assert await run(copy, url) == 0
    lines = zip(own.splitlines(), text(copy).splitlines(), strict=True)
    assert len([old for old, new in lines if old != new]) == 1
    assert f"@{registry.digest}" in text(copy)
    copy.write_text("FROM scratch\n")
    assert await run(copy, "http://127.0.0.1:9") == 1
