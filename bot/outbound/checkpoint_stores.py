"""Find the newest checkpoint in an external store: on the Hub, in S3, in Google Cloud Storage, or behind one URL.

The clients are imported on first use and run in a thread. They return facts or raise one error, and decide nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from bot.outbound.egress import AddressRefused, AddressUnreachable, Egress, head
from bot.outbound.names import NAMES, ResolverBusy

TIMEOUT_S = 20.0
#: Files beside checkpoints: they log a job or describe a repository, and contain nothing that the job saved.
_BESIDE = re.compile(
    r"\.(?:log|out|err)(?:\.(?:\d+|gz))?$|(?:^|/)(?:events\.out\.|logs?/|\.git\w+$|README(?:\.\w+)?$)", re.IGNORECASE
)
CONNECT_S = 5.0
#: Files of a place that are looked at for the last complete checkpoint: those of many checkpoints.
MOST_FILES = 5000
#: Google Cloud Storage speaks the protocol of S3 here, with the HMAC keys of a service account.
GS_URL = "https://storage.googleapis.com"
#: How many stores are read at once; the others wait.
THREADS = 4


class StoreUnreachable(Exception):
    """The store could not be read; the message is one sentence without any secret."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file: its path, its size in bytes, its time in the store, and the hash that the store gives for it."""

    path: str
    size: int
    at: datetime
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Stores:
    """The checkpoint stores. `secrets` are the variables that their own clients know, such as HF_TOKEN."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    hub_url: str | None = None
    s3_url: str | None = None
    gs_url: str = GS_URL
    #: A place is read for this long: keys come in ascending order, so what was not read is often the newest.
    timeout_s: float = TIMEOUT_S
    #: Where a URL may lead; the requester chooses the URL.
    egress: Egress = field(default_factory=Egress)
    #: Its own: a slow store must not keep the threads in which clouds and Slack resolve their names.
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "stores"), repr=False)

    async def newest(self, scheme: str, root: str, path: str) -> StoredFile | None:
        """Return the newest file at a place, of scheme s3, gs, hf or https; None where there is none.

        Raises `StoreUnreachable` when the store could not be read.
        """
        return next(iter(await self._look(scheme, root, path, 1)), None)

    async def files(self, scheme: str, root: str, path: str) -> tuple[StoredFile, ...]:
        """Return the newest files at such a place, the newest first. Raises `StoreUnreachable`."""
        return await self._look(scheme, root, path, MOST_FILES)

    async def public_size(self, source: str) -> int | None:
        """Return the bytes of everything at a place that everybody may read; None where its store won't say.

        The requester chose the place, so it is never read with the service's own credentials.
        """
        scheme, _, rest = source.partition("://")
        root, _, path = rest.rstrip("/").partition("/")
        if scheme == "hf":
            name, _, path = path.partition("/")
            root = f"{root}/{name}"
        everybody = replace(self, secrets={})
        try:
            found = await everybody._look(scheme, source if scheme == "https" else root, path, None)  # noqa: SLF001
        except StoreUnreachable:
            return None
        return sum(one.size for one in found)

    async def _look(self, scheme: str, root: str, path: str, most: int | None) -> tuple[StoredFile, ...]:
        if scheme == "https":
            file = await self._file(root)
            return () if file is None else (file,)
        over = Event()
        try:
            async with asyncio.timeout(self.timeout_s):
                look = {"s3": self._s3, "gs": self._gs}.get(scheme, self._hub)
                return await asyncio.get_running_loop().run_in_executor(self.threads, look, root, path, over, most)
        except TimeoutError:
            raise StoreUnreachable(f"{scheme}://{root} was not read to its end in {self.timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001 # Two libraries and their transports raise what they like.
            # A client's error may contain a signed address or a header, so only its type is named.
            raise StoreUnreachable(f"{scheme}://{root} could not be asked ({type(error).__name__})") from None
        finally:
            over.set()  # A thread cannot be ended from outside, so it checks this between two pages.

    async def _file(self, url: str) -> StoredFile | None:
        """Return one file by its URL, as its server describes it without sending it."""
        try:
            resolve = NAMES.for_user(f"store:{urlsplit(url).hostname}")
            answer = await head(url, self.egress, resolve=resolve, timeout_s=self.timeout_s)
        except AddressRefused:
            raise StoreUnreachable("its URL does not lead to a public address, so it is not called") from None
        except AddressUnreachable as error:
            raise StoreUnreachable(f"its URL could not be asked ({error})") from None
        except ResolverBusy:
            raise StoreUnreachable("too many hosts are being looked up at the moment") from None
        at = urlsplit(url)
        if answer.status in (404, 410):
            return None
        if not 200 <= answer.status < 300:
            raise StoreUnreachable(f"{at.hostname} answered {answer.status}")
        if answer.length is None or answer.modified is None:
            raise StoreUnreachable(f"{at.hostname} does not say how large its file is and when it was changed")
        return StoredFile(at.path.rpartition("/")[2] or at.path, answer.length, answer.modified)

    def _s3(self, bucket: str, prefix: str, over: Event, most: int | None) -> tuple[StoredFile, ...]:
        client = _bucket_client(self.s3_url, self.secrets, "AWS", self.secrets.get("AWS_REGION", "us-east-1"))
        return _in_bucket(client, bucket, prefix, over, most)

    def _gs(self, bucket: str, prefix: str, over: Event, most: int | None) -> tuple[StoredFile, ...]:
        return _in_bucket(_bucket_client(self.gs_url, self.secrets, "GS", "auto"), bucket, prefix, over, most)

    def _hub(self, repository: str, path: str, over: Event, most: int | None) -> tuple[StoredFile, ...]:
        from huggingface_hub import HfApi  # noqa: PLC0415 # Heavy, and only needed where checkpoints are on the Hub.
        from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

        api: Any = HfApi(endpoint=self.hub_url, token=self.secrets.get("HF_TOKEN") or False)
        # A listing of an unreachable Hub is retried for 23 s in a thread that nothing ends; this call is tried once.
        api.model_info(repository, timeout=CONNECT_S)
        newest = _kept(most)
        try:
            for one in api.list_repo_tree(repository, path or None, recursive=True, expand=True):
                if over.is_set():
                    return ()
                commit = getattr(one, "last_commit", None)
                if commit is not None and hasattr(one, "size"):
                    lfs = getattr(one, "lfs", None)
                    digest = lfs.sha256 if lfs is not None else getattr(one, "blob_id", None)
                    newest.add(StoredFile(one.path, int(one.size), commit.date, digest or ""))
        except EntryNotFoundError:
            return ()
        return newest.files()


def _bucket_client(url: str | None, secrets: Mapping[str, str], prefix: str, region: str) -> Any:
    """Return a client of a store that speaks the protocol of S3. Without its keys, it reads what everybody can read."""
    import boto3  # noqa: PLC0415 # Heavy, and only needed where checkpoints are in a bucket.
    from botocore import UNSIGNED  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    key, secret = (secrets.get(f"{prefix}_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
    tried: Any = {"max_attempts": 2}
    config = Config(connect_timeout=CONNECT_S, read_timeout=10, retries=tried, s3={"addressing_style": "path"})
    if key is None:
        config = config.merge(Config(signature_version=UNSIGNED))
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name=region,
        config=config,
    )


def _in_bucket(client: Any, bucket: str, prefix: str, over: Event, most: int | None) -> tuple[StoredFile, ...]:
    newest = _kept(most)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        if over.is_set():
            return ()  # Nobody waits for this result any more.
        for one in page.get("Contents", ()):
            # `run` is a prefix of `run2/` too, where another job's newer file would count for this place.
            if not prefix or one["Key"] == prefix or one["Key"].startswith(f"{prefix}/"):
                digest = str(one.get("ETag", "")).strip('"')
                newest.add(StoredFile(one["Key"], int(one["Size"]), one["LastModified"], digest))
    return newest.files()


def _kept(most: int | None) -> _NewestFiles | _Total:
    return _Total() if most is None else _NewestFiles(most)


class _Total:
    """Add up all files of a listing."""

    def __init__(self) -> None:
        self._size = 0

    def add(self, one: StoredFile) -> None:
        self._size += one.size

    def files(self) -> tuple[StoredFile, ...]:
        """Return one entry for all of them."""
        return (StoredFile("", self._size, datetime.min.replace(tzinfo=UTC)),)


class _NewestFiles:
    """Keep the newest files of a listing of any length; of equally old ones, those that are listed last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[datetime, int, StoredFile]] = []
        self._count = 0

    def add(self, one: StoredFile) -> None:
        # A log still grows when nothing is saved any more, and a new repository has a file before anything is saved.
        if _BESIDE.search(one.path):
            return
        self._count += 1
        put = heapq.heappush if len(self._kept) < self._most else heapq.heappushpop
        put(self._kept, (one.at, self._count, one))

    def files(self) -> tuple[StoredFile, ...]:
        """Return them, the newest first."""
        return tuple(one for *_, one in sorted(self._kept, reverse=True, key=lambda kept: kept[:2]))
