"""The clouds this program knows. One line per cloud; nothing else names an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from ledger.kernel.clock import Clock
from providers import cloud_names
from providers.capabilities import PriceSource
from providers.clouds.kaggle.adapter import KaggleConfig, KaggleProvider
from providers.clouds.lambda_cloud.adapter import LambdaConfig, LambdaProvider
from providers.clouds.lambda_cloud.file_systems import LambdaVolumes
from providers.clouds.runpod.adapter import RunPodConfig, RunPodProvider
from providers.clouds.runpod.network_volumes import RunPodVolumes
from providers.clouds.tensordock.adapter import TensorDockConfig, TensorDockProvider
from providers.clouds.vast.adapter import VastConfig, VastProvider
from providers.contract import Provider
from providers.rate_limits import Pacer

PROFILES = Path(__file__).parent / "profiles"


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """How to build one cloud's adapter, where its settings come from, and its profile.

    `required` and `optional` map an environment variable to the field of `config_class` that it fills.
    `alternative` is another complete set of credentials, which is enough without `required`; it may be empty.
    `where` is the page on which a person makes the credentials.
    """

    name: str
    config_class: type[BaseModel]
    build: Callable[[Any, Clock, Pacer | None], Provider]
    required: Mapping[str, str]
    where: str
    optional: Mapping[str, str] = field(default_factory=dict)
    alternative: Mapping[str, str] = field(default_factory=dict)
    #: Builds what lists, creates and deletes its network volumes; None where it has none.
    volumes: Callable[[Any, Clock, Pacer | None], Provider] | None = None
    #: What its adapter's offers are while no key is set; None where it gives none then.
    without_key: PriceSource | None = None

    @property
    def fields(self) -> Mapping[str, str]:
        """Every variable that is read, with the field that it fills; those of the credentials first."""
        return {**self.required, **self.alternative, **self.optional}

    @property
    def needs(self) -> str:
        """What to set, for people: `A and B`, or `A and B, or C alone` where there is an alternative."""
        needed = " and ".join(self.required)
        return f"{needed}, or {' and '.join(self.alternative)} alone" if self.alternative else needed

    @property
    def env_vars(self) -> tuple[str, ...]:
        """The variables without which this cloud cannot be used."""
        return tuple(self.required)

    @property
    def profile(self) -> Path:
        return PROFILES / f"{self.name}.md"

    def missing(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """The required variables that `env` lacks or leaves empty; none when it has the whole alternative."""

        def lacks(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(name for name in names if not env.get(name, "").strip())

        return () if self.alternative and not lacks(self.alternative) else lacks(self.required)

    def config(self, env: Mapping[str, str]) -> BaseModel:
        """The configuration in `env`. What is missing keeps its default: `preflight` then says what to set."""
        return self.config_class(
            **{key: env[name].strip() for name, key in self.fields.items() if env.get(name, "").strip()}
        )

    def build_all(self, config: Any, clock: Clock, pacer: Pacer | None = None) -> dict[str, Provider]:
        """The cloud's machines and, where it has them, its network volumes: each under its own name."""
        found = {self.name: self.build(config, clock, pacer)}
        if self.volumes is not None:
            found[cloud_names.volumes_of(self.name)] = self.volumes(config, clock, pacer)
        return found

    def connect_all(self, env: Mapping[str, str], clock: Clock, pacer: Pacer | None = None) -> dict[str, Provider]:
        """Both, configured from `env`."""
        return self.build_all(self.config(env), clock, pacer)

    def connect(self, env: Mapping[str, str], clock: Clock, pacer: Pacer | None = None) -> Provider:
        """An adapter configured from `env`. Without a pacer it keeps the cloud's limits for itself alone."""
        return self.build(self.config(env), clock, pacer)


_ENTRIES = (
    ProviderEntry(
        "vast", VastConfig, VastProvider, {"VAST_API_KEY": "api_key"},
        "https://console.vast.ai/manage-keys/", {"VAST_URL": "base_url"},
        without_key=VastProvider.WITHOUT_KEY,
    ),
    ProviderEntry(
        "runpod", RunPodConfig, RunPodProvider, {"RUNPOD_API_KEY": "api_key"},
        "https://console.runpod.io/user/settings",
        {
            "RUNPOD_REST_V2_URL": "base_url", "RUNPOD_CONTAINER_DISK_GB": "container_disk_gb", "RUNPOD_TIERS": "tiers",
            "RUNPOD_SPOT": "spot",
        },
        volumes=RunPodVolumes,
        without_key=RunPodProvider.WITHOUT_KEY,
    ),
    ProviderEntry(
        "lambda", LambdaConfig, LambdaProvider, {"LAMBDA_API_KEY": "api_key"},
        "https://cloud.lambda.ai/api-keys",
        {"LAMBDA_API_URL": "base_url"},
        volumes=LambdaVolumes,
        without_key=LambdaProvider.WITHOUT_KEY,
    ),
    ProviderEntry(
        "tensordock", TensorDockConfig, TensorDockProvider, {"TENSORDOCK_API_TOKEN": "api_key"},
        "https://dashboard.tensordock.com/developers",
        {
            "TENSORDOCK_API_URL": "base_url", "TENSORDOCK_IMAGE": "image", "TENSORDOCK_V0_URL": "v0_url",
            "TENSORDOCK_V0_API_KEY": "v0_api_key", "TENSORDOCK_V0_API_TOKEN": "v0_api_token",
        },
        without_key=TensorDockProvider.WITHOUT_KEY,
    ),
    ProviderEntry(
        "kaggle", KaggleConfig, KaggleProvider, {"KAGGLE_USERNAME": "username", "KAGGLE_KEY": "api_key"},
        "https://www.kaggle.com/settings",
        {"KAGGLE_API_URL": "base_url"}, {"KAGGLE_API_TOKEN": "api_token"},
    ),
)  # fmt: skip

_BY_NAME: dict[str, ProviderEntry] = {}
#: name → entry, in the order in which clouds are asked and shown.
REGISTRY: Mapping[str, ProviderEntry] = MappingProxyType(_BY_NAME)


def register(entry: ProviderEntry) -> None:
    """Make a cloud known to every interface. ValueError for a name that is taken."""
    if entry.name in _BY_NAME:
        raise ValueError(f"there is a cloud called {entry.name} already")
    _BY_NAME[entry.name] = entry
    cloud_names.add(entry.name)


for _entry in _ENTRIES:
    register(_entry)
