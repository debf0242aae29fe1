"""Stand-ins for S3, Google Cloud Storage and the Hugging Face Hub, over real HTTP.

They take the calls that the stores' own clients make for a listing and, in buckets, for a download.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from xml.sax.saxutils import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.outbound.checkpoint_stores import Stores
from tests.support.serving import serving


@dataclass
class Shelf:
    """Files of one bucket or repository: path → (bytes, time). `down` answers 503."""

    files: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    down: bool = False
    #: Whether everybody may read it. A call without credentials is refused otherwise.
    public: bool = False
    #: Keys of one page of S3's listing, which come in ascending order as at S3.
    page: int = 1_000
    asked: list[str] = field(default_factory=list)

    def put(self, path: str, size: int, at: datetime) -> None:
        """Upload a file."""
        self.files[path] = (size, at)

    async def s3(self, request: Request) -> Response:
        """ListObjectsV2."""
        self.asked.append(request.headers.get("authorization", ""))
        if self.down or not (self.public or self.asked[-1]):
            return Response(status_code=403)
        prefix = request.query_params.get("prefix", "")
        # Version 1 of the call continues behind a key, version 2 behind what the answer before named.
        after = request.query_params.get("continuation-token") or request.query_params.get("marker", "")
        found = {path for path in self.files if path.startswith(prefix)}
        folders: set[str] = set()
        if request.query_params.get("delimiter") == "/":
            folders = {
                prefix + one[len(prefix) :].partition("/")[0] + "/" for one in found if "/" in one[len(prefix) :]
            }
            found = {one for one in found if "/" not in one[len(prefix) :]}
        keys = sorted(path for path in found if path > after)
        more = (
            f"<NextContinuationToken>{escape(keys[self.page - 1])}</NextContinuationToken>" if keys[self.page :] else ""
        )
        rows = "".join(self._row(key) for key in keys[: self.page])
        more += f"<NextMarker>{escape(keys[self.page - 1])}</NextMarker>" if more else ""
        rows += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        cut = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
        body = f"<ListBucketResult><Name>b</Name>{cut}{rows}</ListBucketResult>"
        return Response(body, media_type="application/xml")

    def _row(self, path: str) -> str:
        """One object as Google's XML API lists it: as S3 does, with two numbers more."""
        size, at = self.files[path]
        return (
            f"<Contents><Key>{escape(path)}</Key><Generation>{at:%s}000000</Generation><MetaGeneration>1</MetaGeneration>"
            f"<LastModified>{at:%Y-%m-%dT%H:%M:%S.000Z}</LastModified><ETag>{self.etag(path)}</ETag>"
            f"<Size>{size}</Size></Contents>"
        )

    def content(self, path: str) -> bytes:
        """The bytes of a file, which follow from its name."""
        return (hashlib.sha256(path.encode()).digest() * (self.files[path][0] // 32 + 1))[: self.files[path][0]]

    def etag(self, path: str) -> str:
        """The ETag of a file: in both stores the MD5 of what was uploaded in one piece. Large ones are not computed."""
        small = self.files[path][0] <= 1_000_000
        return f'"{hashlib.md5(self.content(path) if small else path.encode(), usedforsecurity=False).hexdigest()}"'

    async def stored(self, request: Request) -> Response:
        """GetObject and HeadObject."""
        path = request.path_params["path"]
        if not (self.public or request.headers.get("authorization")):
            return Response(status_code=403)
        if path not in self.files:
            return Response(status_code=404)
        return Response(
            self.content(path),
            headers={"etag": self.etag(path), "last-modified": f"{self.files[path][1]:%a, %d %b %Y %H:%M:%S} GMT"},
        )

    async def model(self, request: Request) -> Response:
        """That a repository exists."""
        if self.down:
            return Response(status_code=503)
        return JSONResponse({"id": f"{request.path_params['org']}/{request.path_params['name']}"})

    async def hub(self, request: Request) -> Response:
        """The tree of a repository."""
        self.asked.append(request.headers.get("authorization", ""))
        below = request.path_params.get("path", "")
        found = [
            (path, *facts) for path, facts in self.files.items() if f"{path}/".startswith(f"{below}/" if below else "")
        ]
        if not found:
            return JSONResponse({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        return JSONResponse(
            [
                {
                    "type": "file",
                    "oid": "0" * 40,
                    "path": path,
                    "size": size,
                    "lastCommit": {"id": "1" * 40, "title": "up", "date": f"{at:%Y-%m-%dT%H:%M:%S.000Z}"},
                }
                for path, size, at in found
            ]
        )


@asynccontextmanager
async def served(shelf: Shelf, *, without_keys: bool = False) -> AsyncIterator[Stores]:
    """The stores that look at a shelf; without keys as a service has none."""
    tree = "/api/models/{org}/{name}/tree/{revision}"
    routes = [
        Route("/api/models/{org}/{name}", shelf.model),
        Route(tree, shelf.hub),
        Route(f"{tree}/{{path:path}}", shelf.hub),
        Route("/{bucket}", shelf.s3),
        Route("/{bucket}/{path:path}", shelf.stored, methods=["GET", "HEAD"]),
    ]
    async with serving(Starlette(routes=routes)) as url:
        secrets = {"HF_TOKEN": "hf_x", "AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "sssssss"}
        secrets |= {"GS_ACCESS_KEY_ID": "GOOG1EX", "GS_SECRET_ACCESS_KEY": "sssssss"}
        yield Stores({} if without_keys else secrets, hub_url=url, s3_url=url, gs_url=url)
