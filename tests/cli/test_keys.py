"""`gpu-shopper keys`: shown once, listed without the secret, over when revoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.rules.access.scopes import TOKEN
from tests.cli.test_commands import elsewhere, run

__all__ = ["elsewhere"]


@pytest.fixture(autouse=True)
def ledger(elsewhere: Path, sqlite_db_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migrated ledger of the test's own, in a folder that only its user may enter."""
    Path(sqlite_db_url.partition(":///")[2]).parent.chmod(0o700)
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", sqlite_db_url)


def test_a_key_is_shown_once_and_revoked() -> None:
    assert run("keys", "list")[1] == "There are no API keys.\n"
    code, out, err = run("keys", "create", "atlas", "--owner", "U012AB3CD", "--days", "30")
    assert code == 0
    shape = TOKEN.fullmatch(out.strip())
    assert shape is not None
    assert "works for 30 days. Store it now" in err
    code, listed, _ = run("keys", "list")
    assert (code, shape[1] in listed, "consumer:atlas" in listed, "active" in listed) == (0, True, True, True)
    assert shape[2] not in listed
    assert run("keys", "revoke", shape[1]) == (
        0,
        f"Key {shape[1]} of consumer:atlas is revoked and no longer works.\n",
        "",
    )
    (one,) = json.loads(run("keys", "list", "--json")[1])
    assert (one["id"], one["state"], one["owner"]) == (shape[1], "revoked", "slack:U012AB3CD")


def test_a_person_has_several_ssh_keys() -> None:
    bodies = ("OMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", "JdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ")
    lines = [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{body}" for body in bodies]
    assert run("ssh-key", "list") == (
        1, "", "You have no SSH key here. Add one: `gpu-shopper ssh-key add ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…`\n"
    )  # fmt: skip
    assert run("ssh-key", "add", f"{lines[0]} me@laptop")[0] == 0
    code, out, _ = run("ssh-key", "add", lines[1])
    assert (code, "New machines accept it, and your other key." in out) == (0, True)
    keys = json.loads(run("ssh-key", "list", "--json")[1])["keys"]
    assert [one["public_key"] for one in keys] == lines
    code, out, _ = run("ssh-key", "list")
    assert [one["fingerprint"] in out for one in keys] == [True, True]
    code, _, err = run("ssh-key", "remove")
    assert (code, "You have 2 SSH keys. Name one by its fingerprint" in err) == (1, True)
    assert run("ssh-key", "remove", keys[0]["fingerprint"][:16])[0] == 0
    assert [one["public_key"] for one in json.loads(run("ssh-key", "show", "--json")[1])["keys"]] == lines[1:]
    assert run("ssh-key", "remove")[0] == 0


def test_a_person_may_decide_and_a_program_may_not() -> None:
    code, out, _ = run("keys", "create", "operator:ada", "--scope", "admin", "--scope", "approvals:write", "--json")
    assert (code, json.loads(out)["actor"]) == (0, "operator:ada")
    for arguments, says, ends in (
        (("atlas", "--owner", "U012AB3CD", "--scope", "approvals:write"), "is for the key of a person", 1),
        (("atlas",), "Name the person who owns", 2),
        (("Atlas!", "--owner", "U012AB3CD"), "such as atlas", 2),
        (("atlas", "--owner", "U012AB3CD", "--scope", "all"), "there are market:read", 2),
    ):
        code, out, err = run("keys", "create", *arguments)
        assert (code, out, says in err) == (ends, "", True), arguments
    unknown = 'No API key "000000000000". Run `gpu-shopper keys list`.\n'
    assert run("keys", "revoke", "000000000000") == (2, "", unknown)
