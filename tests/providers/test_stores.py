"""The newest file of a place, asked with each store's own client over real HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from providers.stores import Stores, StoreUnreachable
from tests.support.stores import Shelf, served

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


async def test_each_store_says_which_file_is_the_newest() -> None:
    shelf = Shelf()
    shelf.put("run/step-10.pt", 100, NOW - timedelta(hours=2))
    shelf.put("run/step-20.pt", 200, NOW)
    shelf.put("other/step-30.pt", 300, NOW + timedelta(hours=1))
    async with served(shelf) as stores:
        for scheme, root in (("s3", "bucket"), ("hf", "org/model")):
            found = await stores.newest(scheme, root, "run")
            assert found is not None
            assert (found.path, found.size, found.at) == ("run/step-20.pt", 200, NOW), scheme
            assert await stores.newest(scheme, root, "nothing/here") is None
        assert any("AKIAX" in one for one in shelf.asked)
        assert "Bearer hf_x" in shelf.asked


async def test_what_cannot_be_asked_says_so_without_any_secret() -> None:
    shelf = Shelf(down=True)
    async with served(shelf) as stores:
        with pytest.raises(StoreUnreachable, match="s3://bucket could not be asked") as caught:
            await stores.newest("s3", "bucket", "")
        assert "AKIAX" not in str(caught.value) + repr(stores)
    with pytest.raises(StoreUnreachable):
        await Stores(hub_url="http://127.0.0.1:9").newest("hf", "org/model", "x")
