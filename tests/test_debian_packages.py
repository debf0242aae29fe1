"""What `make install` installs for the tests: what is missing, no service started, and no SSH server beside systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import debian_packages


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A computer with apt-get alone, whose administrator installs; what was run there."""
    ran: list[list[str]] = []
    policy = tmp_path / "policy-rc.d"

    def run(command: list[str], **_: Any) -> None:
        assert policy.read_text() == "#!/bin/sh\nexit 101\n"
        assert policy.stat().st_mode & 0o111
        ran.append(command)

    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(debian_packages, "START_POLICY", policy)
    monkeypatch.setattr(debian_packages, "SYSTEMD", tmp_path / "systemd")
    return ran


def test_what_is_missing_is_installed_and_no_service_starts(bare: list[list[str]], tmp_path: Path) -> None:
    debian_packages.install()
    assert [one[1] for one in bare] == ["update", "install"]
    assert {"chromium", "bubblewrap", "openssh-server"} <= set(bare[1])
    assert not (tmp_path / "policy-rc.d").exists()


def test_beside_systemd_no_ssh_server_is_installed(bare: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "systemd").mkdir()
    debian_packages.install()
    assert "openssh-server" not in bare[1]


def test_who_is_no_administrator_installs_nothing(bare: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    debian_packages.install()
    assert bare == []


def test_a_policy_that_is_there_stays(bare: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    debian_packages.install()
    assert len(bare) == 2
    assert policy.exists()
