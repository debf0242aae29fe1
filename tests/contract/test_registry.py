"""A registered cloud is complete: adapter, sandbox, profile, settings."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import ValidationError

from providers import cloud_names
from providers.capabilities import Capabilities
from providers.contract import Provider
from providers.errors import ProviderError
from providers.gpus.data import SPELLINGS
from providers.profiles import model
from providers.registry import PROFILES, REGISTRY, ProviderEntry
from providers.sandbox.faults import COMMON_FAULTS, PRICE_FAULTS, SSH_FAULTS
from providers.sandbox.sandboxes import SANDBOXES, sandboxes
from tests.support.clock import SteppedClock


@pytest.fixture(params=list(REGISTRY))
def entry(request: pytest.FixtureRequest) -> ProviderEntry:
    return REGISTRY[request.param]


def able(entry: ProviderEntry) -> Capabilities:
    return entry.connect({}, SteppedClock()).capabilities


def test_the_key_is_the_name(entry: ProviderEntry) -> None:
    assert REGISTRY[entry.name] is entry
    assert SANDBOXES[entry.name].name == entry.name


def test_one_table_has_the_names_of_all_clouds() -> None:
    assert cloud_names.names() == tuple(REGISTRY)
    titles = {name: cloud_names.cloud_title(name) for name in (*SPELLINGS, cloud_names.volumes_of("runpod"), "other")}
    assert titles == {
        "vast": "Vast",
        "runpod": "RunPod",
        "lambda": "Lambda",
        "tensordock": "TensorDock",
        "kaggle": "Kaggle",
        "runpod-volumes": "RunPod",
        "other": "other",
    }


def test_every_cloud_has_a_sandbox_in_the_same_order() -> None:
    assert tuple(SANDBOXES) == tuple(REGISTRY)


def test_the_profile_has_its_shape_and_agrees_with_the_adapter(entry: ProviderEntry) -> None:
    assert model.lint(entry.profile, entry.connect({}, SteppedClock()).capabilities) == []
    assert model.load(entry.name).front.platform == entry.name


def test_no_profile_without_a_cloud() -> None:
    assert {path.stem for path in PROFILES.glob("*.md")} == set(REGISTRY) | set(model.NOTES)
    assert set(model.names()) == set(REGISTRY)


def test_the_sandbox_fills_the_settings(entry: ProviderEntry) -> None:
    sandbox = sandboxes(SteppedClock(), names=(entry.name,))[entry.name]
    environment = sandbox.environment("http://127.0.0.1:1")

    assert entry.missing(environment) == ()
    assert entry.missing({}) == entry.env_vars
    assert entry.missing(dict.fromkeys(environment, " ")) == entry.env_vars
    assert set(entry.fields) <= set(environment)


def test_an_alternative_credential_is_enough_alone(entry: ProviderEntry) -> None:
    if not entry.alternative:
        assert entry.needs == " and ".join(entry.required)
        return
    alone = dict.fromkeys(entry.alternative, "token")
    assert entry.missing(alone) == ()
    assert entry.missing({**alone, next(iter(entry.alternative)): " "}) == entry.env_vars
    assert entry.config(alone).model_dump().keys() >= set(entry.alternative.values())
    assert entry.needs.endswith("alone")


@pytest.mark.parametrize("bad", ["hunter2 with spaces", "hunter2\nX-Evil: 1", "hunter2\u2019"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(entry: ProviderEntry, bad: str) -> None:
    for variable in entry.env_vars:
        with pytest.raises(ValidationError, match="printable ASCII") as caught:
            entry.config({variable: bad})
        assert "hunter2" not in str(caught.value) + repr(caught.value)


def test_the_adapter_meets_the_protocol(entry: ProviderEntry) -> None:
    provider = entry.connect({}, SteppedClock())

    assert isinstance(provider, Provider)
    assert provider.name == entry.name
    assert provider.capabilities.name_max >= 30


def test_every_create_fault_is_a_fault_with_a_known_class(entry: ProviderEntry) -> None:
    classes = {"ok"} | {cls.__name__ for cls in ProviderError.__subclasses__()}
    faults = SANDBOXES[entry.name].FAULTS

    assert set(faults.creates) <= set(faults)
    assert set(faults.creates.values()) <= classes
    sold_out = "QuotaExceeded" if able(entry).free else "NoCapacity"
    assert {"OutcomeUnknown", sold_out, "RateLimited", "AuthFailed"} <= set(faults.creates.values())


def test_every_common_fault_exists_here(entry: ProviderEntry) -> None:
    foreign = (SSH_FAULTS if not able(entry).ssh else set()) | (PRICE_FAULTS if able(entry).free else set())
    own = {SANDBOXES[entry.name].FAULTS.own_name(name) for name in COMMON_FAULTS.keys() - foreign}

    assert own <= set(SANDBOXES[entry.name].FAULTS)


def test_the_same_seed_gives_the_same_market(entry: ProviderEntry) -> None:
    one, two = (sandboxes(SteppedClock(), seed=3, names=(entry.name,))[entry.name] for _ in range(2))

    assert one.engine.random("x").random() == two.engine.random("x").random()
    assert one.reprice("*", Decimal(1)) == two.reprice("*", Decimal(1)) > 0
