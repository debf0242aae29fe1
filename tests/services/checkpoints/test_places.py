"""Which checkpoint places are read with the service's credentials."""

from __future__ import annotations

from tests.services.checkpoints.test_verification import near_its_end
from tests.support.world import World


async def test_a_place_that_the_policy_does_not_list_is_not_read_with_the_services_credentials(w: World) -> None:
    async with near_its_end(w) as (shelf, _):
        w.tune(checkpoint_places=("s3://bucket/run2",))
        shelf.put("run/step-9.pt", 10, w.clock.now())
        before = len(shelf.asked)
        await w.settle()
        w.clock.advance(31)
        await w.settle()
        assert len(shelf.asked) == before
        assert w.alive() != []
        w.tune(checkpoint_places=("s3://bucket",))
        w.clock.advance(3600)
        await w.settle()
        assert len(shelf.asked) > before
