"""`gpu-shopper secret`: a value comes from standard input, and no command shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from tests.cli.test_commands import elsewhere, run

__all__ = ["elsewhere"]


@pytest.fixture(autouse=True)
def ledger(elsewhere: Path, sqlite_db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migrated ledger of the test's own, in a folder that only its user may enter."""
    Path(sqlite_db_url.partition(":///")[2]).parent.chmod(0o700)
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", sqlite_db_url)


def fed(text: str | bytes, *arguments: str) -> tuple[int, str, str]:
    """Run a command with this on its standard input."""
    result = CliRunner().invoke(build(), arguments, input=text)
    return result.exit_code, result.stdout, result.stderr


def test_a_secret_is_stored_from_standard_input_listed_by_name_and_deleted(elsewhere: Path) -> None:
    assert run("secret") == (0, "You have no secrets here. Store one: gpu-shopper secret set HF_TOKEN\n", "")
    code, out, err = fed("hf_canary\n", "secret", "set", "HF_TOKEN")
    assert (code, out, err) == (0, "HF_TOKEN is stored. Name it in a request, as in secrets=HF_TOKEN.\n", "")
    assert fed("hf_canary2", "secret", "set", "HF_TOKEN")[1].startswith("HF_TOKEN has a new value.")
    code, listed, _ = run("secret", "list")
    assert (code, "HF_TOKEN" in listed, "canary" in listed) == (0, True, False)
    (one,) = json.loads(run("secret", "list", "--json")[1])
    assert sorted(one) == ["created_at", "name", "updated_at"]
    for file in elsewhere.rglob("*"):
        assert not file.is_file() or b"hf_canary" not in file.read_bytes(), file
    assert run("secret", "delete", "HF_TOKEN")[0] == 0
    assert run("secret", "delete", "HF_TOKEN") == (
        1, "", "You have no secret HF_TOKEN. To see your secrets: `gpu-shopper secret list`.\n"
    )  # fmt: skip


def test_a_value_is_no_argument_and_wrong_ones_are_not_repeated() -> None:
    assert run("secret", "set", "HF_TOKEN", "hf_canary")[0] == 2
    assert fed("hf_canary", "secret", "set", "PATH")[0] == 2
    for value in ("", "\n", "hf_canary" * 1000, b"hf_canary\xff", "hf_canary\x00"):
        code, out, err = fed(value, "secret", "set", "HF_TOKEN")
        assert (code != 0, out, "canary" in err) == (True, "", False), err
