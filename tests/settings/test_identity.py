"""The label key and the deployment's name: made once, private, and never in the database."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bot.rules.values.labels import DEPLOYMENT_FILE, KEY_FILE
from bot.settings import identity, private_directory
from bot.settings.identity import IdentityError


def test_the_identity_is_made_once_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = identity(folder)
    assert identity(folder) == first
    assert len(first.key) == 32
    for path in (folder, folder / KEY_FILE, folder / DEPLOYMENT_FILE):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert sorted(path.name for path in folder.iterdir()) == [DEPLOYMENT_FILE, KEY_FILE]


def test_given_values_win_and_leave_no_file(tmp_path: Path) -> None:
    key = identity(tmp_path / "data", key_hex="ab" * 32, deployment="prd1")
    assert (key.deployment, key.key) == ("prd1", b"\xab" * 32)
    assert not (tmp_path / "data").exists()


def test_starters_at_the_same_moment_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: identity(tmp_path / "data"), range(16)))
    assert len({(key.deployment, key.key) for key in made}) == 1


def test_a_loose_mode_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    identity(folder)
    (folder / KEY_FILE).chmod(0o644)
    with pytest.raises(IdentityError, match=r"mode 0644.*chmod 600 .*label\.key"):
        identity(folder)
    (folder / KEY_FILE).chmod(0o600)
    folder.chmod(0o755)
    with pytest.raises(IdentityError, match="chmod 700"):
        private_directory(folder)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    identity(folder)
    (folder / KEY_FILE).write_text("rubbish")
    with pytest.raises(IdentityError, match="32 hexadecimal digits"):
        identity(folder)
    with pytest.raises(IdentityError, match="4 characters"):
        identity(tmp_path / "other", key_hex="ab" * 32, deployment="LONGER")
