"""Pods of one set: they join the private network of their account."""

from __future__ import annotations

from providers.clouds.runpod import instances
from tests.providers.clouds.runpod.test_instances_and_offers import offers, row, spec


def test_a_pod_of_a_set_joins_the_private_network_and_shows_its_name_there() -> None:
    assert instances.create_body(spec(in_set=True))["globalNetworking"] is True
    assert "globalNetworking" not in instances.create_body(spec())
    for network, host in (
        ({"enabled": True, "internalDns": "p1.runpod.internal", "ip": "10.1.2.3"}, "p1.runpod.internal"),
        ({"enabled": True, "ip": "10.1.2.3"}, "10.1.2.3"),
        ({"enabled": True}, None),
        ({"enabled": False, "ip": "10.1.2.3"}, None),
        (None, None),
    ):
        pod = {"id": "p1", "status": "RUNNING", "globalNetworking": network}
        assert instances.observed(pod).set_host == host
        assert instances.observed(pod | {"status": "STARTING"}).set_host is None


def test_only_secure_pods_in_a_known_datacenter_reach_each_other() -> None:
    center = {"dataCenters": [{"id": "US-TX-3", "availability": "HIGH"}]}
    assert [one.linked for one in offers(row(**center), tier="SECURE")] == [True]
    assert [one.linked for one in offers(row(**center))] == [False]
    assert [one.linked for one in offers(row(), tier="SECURE")] == [False]
