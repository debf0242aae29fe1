"""`gpu-shopper backup`, its check and `restore`, as an operator types them."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bot.settings import identity
from tests.cli.test_commands import elsewhere, run

__all__ = ["elsewhere"]

PASSPHRASE = "correct horse battery"


@pytest.fixture
def data(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with an identity and a ledger, and the passphrase in the environment."""
    folder = elsewhere / "data"
    identity(folder)
    run("db", "upgrade")
    monkeypatch.setenv("GPU_SHOPPER_BACKUP_PASSPHRASE", PASSPHRASE)
    return folder


def archive_in(folder: Path) -> Path:
    (path,) = folder.glob("*.tar")
    return path


def test_a_backup_is_written_checked_and_restored_in_a_sentence_each(data: Path, elsewhere: Path) -> None:
    code, out, err = run("backup", str(elsewhere / "safe"))
    path = archive_in(elsewhere / "safe")
    assert (code, err) == (0, "")
    deployment = (data / "deployment.id").read_text()
    facts = rf"deployment {deployment} on SQLite, revision \d{{4}}, up to event 0, of [\w: -]+"
    assert re.fullmatch(rf"{re.escape(str(path))} is written: {facts}\.\n", " ".join(out.split()) + "\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    key = (data / "label.key").read_text()
    assert key.encode() not in path.read_bytes()
    code, out, err = run("backup", "--check", str(path))
    assert (code, err) == (0, "")
    assert re.fullmatch(rf".* would come back: {facts}\. The passphrase opens its label key\.", " ".join(out.split()))
    code, out, err = run("restore", str(path))
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert re.search(rf"is restored: {facts}\. The ledger before it is at \S+before-restore-\d{{8}}T\d{{6}}Z\. ", said)
    assert said.endswith("Start `gpu-shopper serve`, then see `gpu-shopper recover` for what happened since.")
    assert PASSPHRASE not in said
    assert key not in said


def test_for_programs_there_is_one_json_document(data: Path, elsewhere: Path) -> None:
    made = json.loads(run("backup", str(elsewhere / "safe"), "--json", "--without-key")[1])
    assert (made["position"], made["members"]) == (0, ["deployment.id", "ledger.db"])
    assert "key_opens" not in made
    checked = json.loads(run("backup", "--check", made["archive"], "--json")[1])
    assert (checked["key_opens"], checked["revision"]) == (False, made["revision"])
    assert json.loads(run("restore", made["archive"], "--json")[1])["aside"].startswith(str(data))


def test_the_check_says_in_one_line_what_would_not_come_back(
    data: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("backup", str(elsewhere / "safe"))
    path = archive_in(elsewhere / "safe")
    monkeypatch.setenv("GPU_SHOPPER_BACKUP_PASSPHRASE", "a wrong passphrase")
    said = f"The passphrase does not open the label key in {path.name}.\n"
    assert run("backup", "--check", str(path)) == (1, "", said)
    assert run("restore", str(path)) == (1, "", said)
    monkeypatch.delenv("GPU_SHOPPER_BACKUP_PASSPHRASE")
    assert " ".join(run("backup", "--check", str(path))[1].split()).endswith("Its label key was not tried.")
    content = bytearray(path.read_bytes())
    content[-20_000] ^= 1
    path.write_bytes(content)
    code, out, err = run("backup", "--check", str(path))
    assert (code, out) == (1, "")
    assert re.fullmatch(rf"{re.escape(path.name)} can't be restored: \S+ is damaged\.\n", err)
    code, _, err = run("backup", "--check", str(elsewhere / "none.tar"))
    assert (code, "No such file" in err) == (78, True)


def test_the_passphrase_comes_from_a_private_file_too_and_a_short_one_is_refused(
    data: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPU_SHOPPER_BACKUP_PASSPHRASE")
    needs = "The label key needs a passphrase of at least 12 characters: --passphrase-file FILE, or"
    code, _, err = run("backup", str(elsewhere / "safe"))
    assert (code, err.startswith(needs)) == (78, True)
    file = elsewhere / "passphrase"
    file.write_text("short\n")
    file.chmod(0o600)
    code, _, err = run("backup", str(elsewhere / "safe"), "--passphrase-file", str(file))
    assert (code, err.startswith(needs)) == (78, True)
    file.write_text(f"{PASSPHRASE}\n")
    file.chmod(0o644)
    code, _, err = run("backup", str(elsewhere / "safe"), "--passphrase-file", str(file))
    assert (code, "so others can reach it" in err) == (78, True)
    file.chmod(0o600)
    assert run("backup", str(elsewhere / "safe"), "--passphrase-file", str(file))[0] == 0
    path = archive_in(elsewhere / "safe")
    assert run("restore", str(path), "--passphrase-file", str(file))[0] == 0
    code, _, err = run("restore", str(path))
    assert (code, err) == (1, "The archive has a label key. Give its passphrase, or add --without-key.\n")


def test_a_command_line_without_a_folder_or_with_both_is_refused(data: Path) -> None:
    for arguments in ((), ("safe", "--check", "x.tar")):
        code, _, err = run("backup", *arguments)
        assert (code, err) == (2, "Name the folder of the archives, or an archive after --check.\n")


def test_nothing_is_backed_up_before_there_is_a_deployment(elsewhere: Path) -> None:
    code, _, err = run("backup", str(elsewhere / "safe"), "--without-key")
    assert (code, "so there is nothing to back up" in err) == (1, True)
    assert not (elsewhere / "data").exists()


def test_a_changed_journal_is_backed_up_and_said(data: Path, elsewhere: Path) -> None:
    script = (
        "import sqlite3, sys\nledger = sqlite3.connect(sys.argv[1])\n"
        "ledger.execute('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)', "
        "('evt_1', '2026-03-02 09:00:00', 'a', 'req_1', 'k', '', '', '', '{}'))\n"
        "ledger.execute('INSERT INTO event_hashes VALUES (?, ?, ?, ?, ?)', "
        "('evt_1', 'req_1', 1, 'x', '2026-03-02 09:00:00'))\nledger.commit()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(data / "gpu-shopper.db")], check=True)
    code, out, err = run("backup", str(elsewhere / "safe"))
    assert (code, "is written" in out) == (1, True)
    assert "restore will refuse it, because the ledger's journal was changed: event 1 of req_1" in " ".join(err.split())
