"""The newest file of a place, asked with each store's own client over real HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.outbound.checkpoint_stores import Stores, StoreUnreachable
from bot.outbound.egress import Egress
from tests.support.serving import serving
from tests.support.stores import Shelf, served

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
PLACES = (("s3", "bucket"), ("gs", "bucket"), ("hf", "org/model"))


async def test_each_store_says_which_file_is_the_newest() -> None:
    shelf = Shelf()
    shelf.put("run/step-10.pt", 100, NOW - timedelta(hours=2))
    shelf.put("run/step-20.pt", 200, NOW)
    shelf.put("other/step-30.pt", 300, NOW + timedelta(hours=1))
    shelf.put("run2/step-40.pt", 400, NOW + timedelta(hours=1))
    async with served(shelf) as stores:
        for scheme, root in PLACES:
            found = await stores.newest(scheme, root, "run")
            assert found is not None
            assert (found.path, found.size, found.at) == ("run/step-20.pt", 200, NOW), scheme
            assert await stores.newest(scheme, root, "nothing/here") is None
        assert any("AKIAX" in one for one in shelf.asked)
        assert any("GOOG1EX" in one and "/auto/s3/aws4_request" in one for one in shelf.asked)
        assert "Bearer hf_x" in shelf.asked
        # Neither a log nor a repository's own files speak for a checkpoint.
        for path in ("run/train.log", "run/logs/step-30.txt", "run/events.out.tfevents.1.host", "run/README.md"):
            shelf.put(path, 9, NOW + timedelta(minutes=9))
        shelf.put("new/.gitattributes", 9, NOW)
        for scheme, root in PLACES:
            found = await stores.newest(scheme, root, "run")
            assert found is not None
            assert found.path == "run/step-20.pt"
            assert await stores.newest(scheme, root, "new") is None


async def test_the_newest_of_more_files_than_any_page_holds_is_found_and_a_look_that_is_cut_off_says_so() -> None:
    shelf = Shelf(page=3)
    for number in range(8):
        shelf.put(f"run/step-{number:06d}.pt", 5, NOW + timedelta(minutes=number))
    async with served(shelf) as stores:
        found = await stores.newest("s3", "bucket", "run")
        assert found is not None
        assert found.path == "run/step-000007.pt"
        assert len(shelf.asked) == 3
        for scheme, root in PLACES:
            with pytest.raises(StoreUnreachable, match=f"{scheme}://{root} was not read to its end in 0 s"):
                await replace(stores, timeout_s=0).newest(scheme, root, "run")
        # A look that was cut off goes on in its thread, and would try a server that is gone again and again.
        await asyncio.to_thread(stores.threads.shutdown)


async def test_a_bucket_that_everybody_may_read_is_read_without_keys_and_another_one_is_not() -> None:
    shelf = Shelf(public=True)
    shelf.put("run/step-20.pt", 200, NOW)
    async with served(shelf, without_keys=True) as stores:
        for scheme, root in (("gs", "bucket"), ("hf", "org/model")):
            found = await stores.newest(scheme, root, "run")
            assert found is not None
            assert (found.path, found.size) == ("run/step-20.pt", 200)
        assert set(shelf.asked) == {""}
        shelf.public = False
        with pytest.raises(StoreUnreachable, match=r"gs://bucket could not be asked \(ClientError\)"):
            await stores.newest("gs", "bucket", "run")


async def test_a_listing_as_google_sends_it_is_read() -> None:
    # A row of https://chromedriver.storage.googleapis.com/ in the form of Google's XML API, and a composed object.
    listing = (
        "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
        "<Name>chromedriver</Name><Prefix>89.0.4389.23</Prefix><KeyCount>2</KeyCount><IsTruncated>false</IsTruncated>"
        "<Contents><Key>89.0.4389.23/chromedriver_linux64.zip</Key><Generation>1611855052175154</Generation>"
        "<MetaGeneration>1</MetaGeneration><LastModified>2021-01-28T17:30:52.195Z</LastModified>"
        '<ETag>"24686a3cc3ccf8cbc60cf744baa47692"</ETag><Size>5845152</Size></Contents>'
        "<Contents><Key>89.0.4389.23/composed.zip</Key><Generation>1611855052175155</Generation>"
        "<MetaGeneration>1</MetaGeneration><LastModified>2021-01-28T17:30:51.195Z</LastModified>"
        '<ETag>"CPK8o5Xy5+4CEAE="</ETag><Size>7</Size></Contents></ListBucketResult>'
    )
    asked: list[dict[str, str]] = []

    async def answer(request: Request) -> Response:
        asked.append(dict(request.query_params))
        return Response(listing, media_type="application/xml")

    async with serving(Starlette(routes=[Route("/{bucket}", answer)])) as url:
        first, second = await Stores(gs_url=url).files("gs", "chromedriver", "89.0.4389.23")
    assert (first.path, first.size) == ("89.0.4389.23/chromedriver_linux64.zip", 5_845_152)
    assert first.digest == "24686a3cc3ccf8cbc60cf744baa47692"
    assert first.at == datetime(2021, 1, 28, 17, 30, 52, 195_000, tzinfo=UTC)
    assert second.digest == "CPK8o5Xy5+4CEAE="
    assert [(one["list-type"], one["prefix"]) for one in asked] == [("2", "89.0.4389.23")]


async def test_the_size_of_everything_is_read_as_everybody_reads_it() -> None:
    shelf = Shelf(public=True, page=2)
    for name in ("run/step-1.pt", "run/step-2.pt", "run/train.log", "other.pt"):
        shelf.put(name, 100, NOW)
    async with served(shelf) as stores:
        assert await stores.public_size("s3://bucket/run") == 300
        assert await stores.public_size("gs://bucket/") == 400
        assert await stores.public_size("hf://org/model/run/") == 300
        assert set(shelf.asked) == {""}
        shelf.public = False
        assert await stores.public_size("s3://bucket/run") is None
        assert await stores.public_size("https://127.0.0.1/a") is None


async def test_each_store_gives_the_hash_of_a_file() -> None:
    shelf = Shelf()
    shelf.put("run/step-20.pt", 200, NOW)
    async with served(shelf) as stores:
        for scheme, root in PLACES:
            (found,) = await stores.files(scheme, root, "run")
            assert len(found.digest) == (40 if scheme == "hf" else 32), scheme


async def test_what_cannot_be_asked_says_so_without_any_secret() -> None:
    shelf = Shelf(down=True)
    async with served(shelf) as stores:
        with pytest.raises(StoreUnreachable, match="s3://bucket could not be asked") as caught:
            await stores.newest("s3", "bucket", "")
        assert "AKIAX" not in str(caught.value) + repr(stores)
        with pytest.raises(StoreUnreachable, match="hf://org/model could not be asked"):
            await stores.newest("hf", "org/model", "")
    with pytest.raises(StoreUnreachable):
        await Stores(hub_url="http://127.0.0.1:9").newest("hf", "org/model", "x")


async def test_a_url_is_asked_for_what_its_server_knows_and_never_inside_our_network() -> None:
    known = {"/a/new.pt": ("5", "Mon, 02 Mar 2026 12:00:00 GMT"), "/vague.pt": (None, None), "/odd.pt": ("5", "soon")}
    methods: list[str] = []

    async def serve(request: Request) -> Response:
        methods.append(request.method)
        path = request.url.path
        if path not in known:
            return Response(status_code=302 if path == "/moved" else 404, headers={"location": "/a/new.pt"})
        length, modified = known[path]
        found = {"content-length": length, "last-modified": modified}
        answer = Response(headers={name: value for name, value in found.items() if value is not None})
        if length is None:
            del answer.headers["content-length"]
        return answer

    async with serving(Starlette(routes=[Route("/{path:path}", serve, methods=["HEAD", "GET", "POST"])])) as url:
        stores = Stores(egress=Egress(networks=("127.0.0.0/8",)))
        found = await stores.newest("https", f"{url}/a/new.pt?sig=secret", "")
        assert found is not None
        assert (found.path, found.size, found.at) == ("new.pt", 5, NOW)
        assert await stores.newest("https", f"{url}/none.pt", "") is None
        for path, said in (("vague.pt", "does not say"), ("odd.pt", "does not say"), ("moved", "answered 302")):
            with pytest.raises(StoreUnreachable, match=said):
                await stores.newest("https", f"{url}/{path}?sig=secret", "")
        with pytest.raises(StoreUnreachable, match="not lead to a public address") as refused:
            await Stores().newest("https", f"{url}/a/new.pt?sig=secret", "")
        assert "secret" not in str(refused.value)
    assert set(methods) == {"HEAD"}
    with pytest.raises(StoreUnreachable, match="could not be asked"):
        await stores.newest("https", f"{url}/a/new.pt", "")
