"""Define every setting of the environment with its default, its sentence and an example, and list the variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bot.rules.checkpoints.stores import STORES
from providers.registry import REGISTRY, ProviderEntry

PREFIX = "GPU_SHOPPER_"
DATABASE_FILE = "gpu-shopper.db"

#: The format of each secret, because a token pasted into the wrong variable is the usual mistake.
SHAPES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "slack_bot_token": (r"xoxb-\S+", "a bot token, which starts with xoxb-"),
        "slack_app_token": (r"xapp-\S+", "an app-level token, which starts with xapp-"),
        "slack_signing_secret": (r"[0-9A-Za-z]{16,}", "at least 16 letters and digits"),
        "label_key": (r"(?:[0-9a-fA-F]{2}){16,}", "at least 32 hexadecimal digits"),
    }
)


class SlackMode(StrEnum):
    """How Slack reaches this process. AUTO is Socket Mode when there is an app-level token, HTTP otherwise."""

    AUTO = "auto"
    SOCKET = "socket"
    HTTP = "http"


class LogFormat(StrEnum):
    """The format of the log. AUTO is readable on a terminal and JSON everywhere else."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _setting(default: Any, doc: str, example: str, **more: Any) -> Any:
    return Field(default=default, description=doc, examples=[example], **more)


class Settings(BaseSettings):
    """Everything that differs between two installations and is not policy. Secrets never show in a repr."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=None, extra="ignore", frozen=True, env_ignore_empty=True, populate_by_name=True
    )

    data_dir: Path = Field(
        default_factory=lambda: Path("~/.local/share/gpu-shopper").expanduser(),
        description="Folder of the SQLite database and of the two identity files; mode 0700.",
        examples=["/var/lib/gpu-shopper"],
    )
    database_url: SecretStr | None = _setting(
        None,
        "Where the ledger is. Empty: the file gpu-shopper.db in the data folder.",
        "postgresql+asyncpg://gpu:PASSWORD@db.example.com/gpu",
    )
    policy: Path | None = _setting(None, "The policy file (docs/policy.md). Empty: every default.", "policy.yml")
    slack_bot_token: SecretStr | None = _setting(
        None, "Bot token of the Slack app (OAuth & Permissions).", "xoxb-…", validation_alias="SLACK_BOT_TOKEN"
    )
    slack_signing_secret: SecretStr | None = _setting(
        None,
        "Signing secret of the Slack app (Basic Information); needed in HTTP mode.",
        "8f742231b10e8888abcd99yyyzzz85a5",
        validation_alias="SLACK_SIGNING_SECRET",
    )
    slack_app_token: SecretStr | None = _setting(
        None,
        "App-level token with connections:write (Basic Information); it switches Socket Mode on.",
        "xapp-…",
        validation_alias="SLACK_APP_TOKEN",
    )
    slack_mode: SlackMode = _setting(SlackMode.AUTO, "auto, socket or http.", "socket")
    slack_api_url: str = _setting(
        "https://slack.com/api/", "Base address of Slack's Web API.", "https://slack.com/api/", pattern="^https?://.+/$"
    )
    slack_team_id: str | None = _setting(
        None, "Workspace whose members may act. Empty: asked of Slack.", "T012AB3CD", pattern="^[TE][A-Z0-9]+$"
    )
    slack_command: str = _setting(
        "/gpu", "The slash command, as in the app's manifest.", "/gpu", pattern="^/[a-z0-9_-]{1,31}$"
    )
    slack_proxy: str | None = _setting(
        None, "HTTP proxy for calls to Slack; the usual proxy variables are ignored.", "http://proxy.example.com:3128"
    )
    approvals_channel: str | None = _setting(
        None,
        "Slack channel where requests are shown. Empty: where each was asked.",
        "C0123ABCD",
        pattern="^[CG][A-Z0-9]+$",
    )
    operators_channel: str | None = _setting(
        None, "Slack channel for what operators must know: orphans, pages.", "C0123ABCD", pattern="^[CG][A-Z0-9]+$"
    )
    host: str = _setting("127.0.0.1", "Address that the HTTP server listens on.", "0.0.0.0")  # noqa: S104
    port: int = _setting(8080, "Port of the HTTP server.", "8080", ge=0, le=65535)
    node_url: str | None = _setting(
        None,
        "Where rented machines reach this service; their agents then report. Empty: no machine has an agent.",
        "https://gpu.example.com",
        pattern="^https?://.+$",
    )
    agent_file: Path | None = _setting(
        None,
        "The program that rented machines run. Empty: the one that `make agent` built, where there is one.",
        "/opt/gpu-shopper/gpu-shopper-agent.pyz",
    )
    url: str | None = _setting(
        None,
        "For the command line elsewhere: where the service is. Commands then go through its REST API.",
        "https://gpu.example.com",
        pattern="^https?://.+$",
    )
    api_key: SecretStr | None = _setting(None, "The API key of a command line elsewhere.", "gpuk_…")
    api_calls_per_minute: int = _setting(
        600, "How often one API key may call a minute, over all replicas.", "600", ge=1, le=1_000_000
    )
    replicas: str = _setting(
        "",
        "Where the other replicas are, separated by commas. One that cannot read the ledger asks them before it ends "
        "anything from its copy.",
        "http://10.0.0.2:8080,http://10.0.0.3:8080",
        pattern="^(https?://[^,\\s]+(,https?://[^,\\s]+)*)?$",
    )
    heartbeat_url: SecretStr | None = _setting(
        None,
        "Address of a monitor that expects a GET each minute; sent only while the jobs and the approved ends are well.",
        "https://hc-ping.com/UUID",
    )
    epoch_dir: Path | None = _setting(
        None,
        "A second folder for epoch.json, which shows that a restored ledger is an old one. Best on another disk.",
        "/mnt/other-disk/gpu-shopper",
    )
    label_key: SecretStr | None = _setting(
        None,
        "Key under the labels of instances, hexadecimal. Empty: made once and kept in the data folder.",
        "6f0c…64 hexadecimal digits",
    )
    deployment: str | None = _setting(
        None,
        "Four characters that tell this deployment's instances from another's. Empty: made once and kept.",
        "prd1",
        pattern="^[0-9abcdefghjkmnpqrstvwxyz]{4}$",
    )
    backup_passphrase: SecretStr | None = _setting(
        None,
        "Passphrase of the label key in backups, at least 12 characters. Empty: from a file, or asked at the terminal.",
        "twelve characters or more",
    )
    hf_token: SecretStr | None = _setting(
        None,
        "Token of the Hugging Face Hub, for private repositories at checkpoint=hf://…",
        "hf_…",
        validation_alias="HF_TOKEN",
    )
    hf_endpoint: str = _setting(
        "https://huggingface.co",
        "Where the shape of a model is read that is not known here. Empty: nowhere, and people are asked for it.",
        "https://hub.example.com",
        validation_alias="HF_ENDPOINT",
    )
    aws_access_key_id: SecretStr | None = _setting(
        None, "Key of S3; needed for checkpoint=s3://…", "AKIA…", validation_alias="AWS_ACCESS_KEY_ID"
    )
    aws_secret_access_key: SecretStr | None = _setting(
        None, "Its secret.", "40 characters", validation_alias="AWS_SECRET_ACCESS_KEY"
    )
    aws_endpoint_url_s3: str | None = _setting(
        None, "Where S3 is, if not Amazon's.", "https://s3.example.com", validation_alias="AWS_ENDPOINT_URL_S3"
    )
    gs_access_key_id: SecretStr | None = _setting(
        None,
        "HMAC key of Google Cloud Storage, for private buckets at checkpoint=gs://…",
        "GOOG1E…",
        validation_alias="GS_ACCESS_KEY_ID",
    )
    gs_secret_access_key: SecretStr | None = _setting(
        None, "The secret of GS_ACCESS_KEY_ID.", "40 characters", validation_alias="GS_SECRET_ACCESS_KEY"
    )
    log_level: LogLevel = _setting(LogLevel.INFO, "debug, info, warning or error.", "info")
    log_format: LogFormat = _setting(LogFormat.AUTO, "auto, json or console.", "json")
    practice: bool = _setting(
        False, "Lifts the floors of the timing; refused unless every address is on this machine.", "false"
    )
    #: Cloud → its adapter's Config, for the clouds whose secrets are all there.
    clouds: Mapping[str, BaseModel] = Field(default_factory=dict, exclude=True)
    #: The same for the clouds that show offers without a key and whose secrets are missing. Nothing is rented by these.
    keyless: Mapping[str, BaseModel] = Field(default_factory=dict, exclude=True)

    @classmethod
    def settings_customise_sources(  # type: ignore[override] # The sources that we do not use come as keywords.
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 # The library calls this by keyword.
        init_settings: PydanticBaseSettingsSource,
        **_: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only what `load` passes in: it reads the environment and `.env` itself, and refuses unknown names."""
        return (init_settings,)

    @field_validator("slack_bot_token", "slack_signing_secret", "slack_app_token", "label_key")
    @classmethod
    def _shape(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        pattern, wanted = SHAPES[str(info.field_name)]
        if value is not None and not re.fullmatch(pattern, value.get_secret_value()):
            raise PydanticCustomError("shape", "It should be {wanted}", {"wanted": wanted})
        return value

    @field_validator("data_dir", "policy", "agent_file", "epoch_dir")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser()

    @property
    def database(self) -> str:
        """Return the URL of the ledger, with its default filled in. It may contain a password: never print it."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite+aiosqlite:///{self.data_dir / DATABASE_FILE}"

    @property
    def sqlite_file(self) -> Path | None:
        """Return the database file, or None when the ledger is on PostgreSQL."""
        scheme, _, rest = self.database.partition(":///")
        return Path(rest.partition("?")[0]) if scheme.startswith("sqlite") else None

    @property
    def identity_dir(self) -> Path:
        """Return the folder of the label key: beside the SQLite file, or the data folder."""
        return self.sqlite_file.parent if self.sqlite_file else self.data_dir

    @property
    def epoch_folders(self) -> tuple[Path, ...]:
        """Return the folders of the epoch: beside the ledger's identity, and the second one where it is set."""
        return (self.identity_dir, *([self.epoch_dir] if self.epoch_dir is not None else []))

    @property
    def replica_urls(self) -> tuple[str, ...]:
        """Return the addresses of the other replicas."""
        return tuple(filter(None, self.replicas.split(",")))

    @property
    def socket_mode(self) -> bool:
        """Whether Slack is reached through Socket Mode."""
        return self.slack_mode is SlackMode.SOCKET or (
            self.slack_mode is SlackMode.AUTO and self.slack_app_token is not None
        )

    @property
    def stores(self) -> tuple[str, ...]:
        """Return which variables of the checkpoint stores are set."""
        values = {name: getattr(self, name.lower()) for store in STORES for name in store.variables}
        return tuple(name for name, value in values.items() if value is not None)

    def store_secrets(self) -> dict[str, str]:
        """Return the values of those variables."""
        return {name: getattr(self, name.lower()).get_secret_value() for name in self.stores}

    def missing_for_slack(self) -> tuple[str, ...]:
        """Return the variables that Slack still needs in the chosen mode."""
        second = ("SLACK_APP_TOKEN", self.slack_app_token)
        if not self.socket_mode:
            second = ("SLACK_SIGNING_SECRET", self.slack_signing_secret)
        return tuple(name for name, value in (("SLACK_BOT_TOKEN", self.slack_bot_token), second) if value is None)

    def secrets(self) -> Iterator[str]:
        """Yield every secret value of the settings, for the redaction of the logs."""
        for model in (self, *self.clouds.values(), *self.keyless.values()):
            for name in type(model).model_fields:
                value = getattr(model, name)
                if isinstance(value, SecretStr) and value.get_secret_value():
                    yield value.get_secret_value()


Clouds = Mapping[str, ProviderEntry]


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, for the check of unknown names, `doctor` and the generated docs."""

    name: str
    doc: str
    default: str
    example: str
    secret: bool
    cloud: str = ""


def variable_of(field: str) -> str:
    """Return the environment variable of one field of `Settings`."""
    return str(Settings.model_fields[field].validation_alias or f"{PREFIX}{field}".upper())


def cloud_variables(entry: ProviderEntry) -> tuple[Variable, ...]:
    """Return the variables of one cloud, the required ones first."""
    found = []
    for name, field in entry.fields.items():
        item = entry.config_class.model_fields[field]
        secret = item.annotation is SecretStr
        example = str((item.examples or ["…"])[0])
        default = "" if secret or item.default in (None, PydanticUndefined) else str(item.default)
        found.append(Variable(name, _cloud_doc(entry, field, item), default, default or example, secret, entry.name))
    return tuple(found)


def _cloud_doc(entry: ProviderEntry, field: str, item: FieldInfo) -> str:
    """Say what one variable of a cloud is, and where to find its value."""
    if field == "base_url":
        return f"Address of the API of {entry.name}. Change it only for a proxy, or the sandbox."
    return item.description or f"Credential of {entry.name}; made at {entry.where}."


def known_variables(clouds: Clouds = REGISTRY) -> tuple[Variable, ...]:
    """Return every variable that is read, in the order of the docs."""
    own = [
        Variable(
            name=variable_of(name),
            doc=item.description or "",
            default=_default_text(name, item),
            example=str((item.examples or [""])[0]),
            secret=item.annotation == SecretStr | None,
        )
        for name, item in Settings.model_fields.items()
        if not item.exclude
    ]
    theirs = [variable for entry in clouds.values() for variable in cloud_variables(entry)]
    return (*own, *theirs)


def _default_text(name: str, item: FieldInfo) -> str:
    if name == "data_dir":
        return "~/.local/share/gpu-shopper"
    if isinstance(item.default, bool):
        return str(item.default).lower()
    return "" if item.default is None else str(item.default)
