"""Settings from the environment: what is read, what is refused, and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.settings import Settings, SettingsError, load
from bot.settings.environment import loopback
from bot.settings.fields import known_variables
from providers.registry import REGISTRY

GOOD = {
    "SLACK_BOT_TOKEN": "xoxb-canary-0123456789",
    "SLACK_APP_TOKEN": "xapp-canary-0123456789",
    "RUNPOD_API_KEY": "rpa_canary0123456789",
}


def read(**environ: str) -> Settings:
    return load(env_file=None, environ=environ)


def complaint(**environ: str) -> str:
    with pytest.raises(SettingsError) as refused:
        read(**environ)
    return str(refused.value)


def test_without_anything_every_default_holds() -> None:
    settings = read()
    assert settings.database == f"sqlite+aiosqlite:///{settings.data_dir}/gpu-shopper.db"
    assert settings.sqlite_file == settings.data_dir / "gpu-shopper.db"
    assert settings.identity_dir == settings.data_dir
    assert settings.clouds == {}
    assert settings.missing_for_slack() == ("SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET")


def test_a_cloud_takes_part_when_its_credentials_are_set() -> None:
    settings = read(**GOOD, RUNPOD_REST_V2_URL="http://127.0.0.1:1/runpod/v2")
    assert list(settings.clouds) == ["runpod"]
    assert settings.clouds["runpod"] == REGISTRY["runpod"].config(
        {"RUNPOD_API_KEY": GOOD["RUNPOD_API_KEY"], "RUNPOD_REST_V2_URL": "http://127.0.0.1:1/runpod/v2"}
    )


def test_clouds_without_a_key_are_read_by_their_addresses_alone() -> None:
    settings = read(**GOOD, VAST_URL="http://127.0.0.1:1", TENSORDOCK_V0_API_KEY="v0-canary-01234")
    assert list(settings.keyless) == ["vast", "lambda", "tensordock"]
    assert settings.keyless["vast"] == REGISTRY["vast"].config({"VAST_URL": "http://127.0.0.1:1"})
    assert "v0-canary-01234" in set(settings.secrets())


def test_a_setting_of_a_cloud_without_a_key_matters_only_while_no_cloud_has_one() -> None:
    assert "runpod" not in read(VAST_API_KEY="canary-0123456789", RUNPOD_CONTAINER_DISK_GB="1").keyless
    assert "RUNPOD_CONTAINER_DISK_GB: Input should be greater" in complaint(RUNPOD_CONTAINER_DISK_GB="1")


def test_an_app_level_token_means_socket_mode_unless_http_is_said() -> None:
    assert read(**GOOD).socket_mode
    assert read(**GOOD).missing_for_slack() == ()
    http = read(**GOOD, GPU_SHOPPER_SLACK_MODE="http")
    assert not http.socket_mode
    assert http.missing_for_slack() == ("SLACK_SIGNING_SECRET",)
    assert read(GPU_SHOPPER_SLACK_MODE="socket").missing_for_slack() == ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN")


def test_secrets_are_not_in_the_repr_but_are_known_to_the_redaction() -> None:
    settings = read(**GOOD)
    assert all(secret not in repr(settings) for secret in GOOD.values())
    assert set(settings.secrets()) == set(GOOD.values())


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("GPU_SHOPPER_PORT=1111\nGPU_SHOPPER_HOST=127.0.0.9\nOTHER=x\n")
    settings = load(env_file=file, environ={"GPU_SHOPPER_PORT": "2222"})
    assert (settings.port, settings.host) == (2222, "127.0.0.9")
    assert load(env_file=tmp_path / "absent", environ={}).port == 8080


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("GPU_SHOPPER_PROT=1111\n")
    with pytest.raises(SettingsError, match=r"GPU_SHOPPER_PROT.*did you mean GPU_SHOPPER_PORT"):
        load(env_file=file, environ={})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GPU_SHOPPER_PORT", "eighty", "Example: GPU_SHOPPER_PORT=8080"),
        ("GPU_SHOPPER_PORT", "70000", "less than or equal to 65535"),
        ("GPU_SHOPPER_SLACK_MODE", "carrier-pigeon", "'auto', 'socket' or 'http'"),
        ("GPU_SHOPPER_DEPLOYMENT", "prod", "Example: GPU_SHOPPER_DEPLOYMENT=prd1"),
        ("GPU_SHOPPER_OPERATORS_CHANNEL", "#ops", "Example: GPU_SHOPPER_OPERATORS_CHANNEL=C0123ABCD"),
        ("GPU_SHOPPER_SLACK_API_URL", "slack.com", "Example: GPU_SHOPPER_SLACK_API_URL=https://slack.com/api/"),
        ("GPU_SHOPPER_WHATEVER", "1", "docs/settings.md"),
    ],
)
def test_a_bad_value_is_named_with_an_example(name: str, value: str, says: str) -> None:
    text = complaint(**{name: value})
    assert text.startswith(name)
    assert says in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLACK_BOT_TOKEN", "xapp-in-the-wrong-place"),
        ("SLACK_APP_TOKEN", "xoxb-in-the-wrong-place"),
        ("SLACK_SIGNING_SECRET", "short"),
        ("GPU_SHOPPER_LABEL_KEY", "not-hexadecimal-at-all"),
    ],
)
def test_a_bad_secret_is_named_and_never_shown(name: str, value: str) -> None:
    text = complaint(**{name: value})
    assert text.startswith(f"{name}: It should be ")
    assert value not in text


def test_every_problem_is_said_at_once() -> None:
    text = complaint(GPU_SHOPPER_PORT="x", SLACK_BOT_TOKEN="y", GPU_SHOPPER_NOPE="z")
    assert len(text.splitlines()) == 3


def test_practice_needs_every_address_on_this_machine() -> None:
    text = complaint(**GOOD, GPU_SHOPPER_PRACTICE="yes")
    assert "GPU_SHOPPER_SLACK_API_URL" in text
    assert "RUNPOD_REST_V2_URL" in text
    near = {"GPU_SHOPPER_SLACK_API_URL": "http://127.0.0.1:9/api/", "RUNPOD_REST_V2_URL": "http://[::1]:9/v2"}
    assert read(**GOOD, **near, GPU_SHOPPER_PRACTICE="yes").practice


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://localhost:1/", True),
        ("http://127.1.2.3/", True),
        ("http://10.0.0.1/", False),
        ("http://localhost.example.com/", False),
        ("nonsense", False),
    ],
)
def test_loopback(url: str, near: bool) -> None:
    assert loopback(url) is near


def test_the_ledger_may_be_elsewhere(tmp_path: Path) -> None:
    pg = read(GPU_SHOPPER_DATABASE_URL="postgresql+asyncpg://u:p@h/n", GPU_SHOPPER_DATA_DIR=str(tmp_path))
    assert pg.sqlite_file is None
    assert pg.identity_dir == tmp_path
    file = read(GPU_SHOPPER_DATABASE_URL=f"sqlite+aiosqlite:///{tmp_path}/x.db?mode=rw", GPU_SHOPPER_POLICY="~/p.yml")
    assert file.sqlite_file == tmp_path / "x.db"
    assert file.policy == Path("~/p.yml").expanduser()


def test_every_variable_has_a_sentence_and_secrets_have_no_default() -> None:
    variables = known_variables()
    assert len({v.name for v in variables}) == len(variables)
    assert all(v.doc for v in variables)
    assert [v.name for v in variables if v.doc.removesuffix(".").endswith(f" of {v.cloud}")] == []
    assert {v.name for v in variables if v.secret} >= {"SLACK_BOT_TOKEN", "RUNPOD_API_KEY", "VAST_API_KEY"}
    assert all(not v.default for v in variables if v.secret)
