"""An offer of several machines has the prices of all of them, and the GPUs of each."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.gpus import refusal_of_set
from bot.rules.market.estimate import estimate
from bot.rules.market.node_sets import as_set, of_one, without_links
from bot.rules.policy.policy import Policy
from tests.rules.builders import capabilities, job, offer, usd


@given(usd(), st.integers(1, 4))
def test_each_machine_of_a_set_has_its_own_price_again(price_usd_h: Decimal, nodes: int) -> None:
    one = offer(price_usd_h=price_usd_h, gpu_usd_h=price_usd_h, storage_usd_h=price_usd_h / 7)
    together = as_set(one, nodes)
    assert (together.nodes, together.gpu_count, together.price_usd_h) == (nodes, 1, price_usd_h * nodes)
    each = of_one(together)
    assert (each.nodes, each.price_usd_h, each.gpu_usd_h) == (1, price_usd_h, price_usd_h)
    assert abs(each.storage_usd_h - one.storage_usd_h) < Decimal("1e-11")


def test_what_has_no_price_keeps_none() -> None:
    together = as_set(offer(price_usd_h=None), 2)
    assert (together.price_usd_h, of_one(together).price_usd_h) == (None, None)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_the_expected_total_counts_every_machine(nodes: int) -> None:
    one = offer(price_usd_h=Decimal("1.5"), storage_usd_h=Decimal("0.03"), egress_usd_gb=Decimal("0.01"))
    single = estimate(one, job(), Policy(), capabilities())
    several = estimate(as_set(one, nodes), job(), Policy(), capabilities())
    assert several.expected_usd == pytest.approx(single.expected_usd * nodes, abs=Decimal("0.00001"))
    assert several.worst_usd == pytest.approx(single.worst_usd * nodes, abs=Decimal("0.00001"))


def test_a_cloud_says_why_it_rents_out_no_set() -> None:
    three, alone = "it runs one program", "its machines stay alone"
    said = refusal_of_set("kaggle", three, 3, shares_queue=False)
    assert said == "kaggle can't rent 3 machines as one set: it runs one program."
    assert refusal_of_set("kaggle", three, 1, shares_queue=False) == ""
    assert refusal_of_set("lambda", "", 3, shares_queue=False) == ""
    said = refusal_of_set("vast", alone, 3, shares_queue=True)
    assert said == "vast can't rent 3 machines of one offer: each of its offers is one machine."
    said = "runpod has no offer now whose machines reach each other, as 2 machines of a set must."
    assert without_links("runpod", 2) == said
