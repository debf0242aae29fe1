"""The agent's archive as GPU Shopper reads it at its start."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bot.services.runtime import agent_archive
from bot.services.runtime.agent_archive import AgentArchive


def test_a_named_archive_is_read_with_its_hash(tmp_path: Path) -> None:
    (tmp_path / "agent.pyz").write_bytes(b"PK")
    found = AgentArchive.read(tmp_path / "agent.pyz")
    assert found == AgentArchive(b"PK", hashlib.sha256(b"PK").hexdigest())


def test_a_named_archive_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"GPU_SHOPPER_AGENT_FILE: .* can't be read"):
        AgentArchive.read(tmp_path / "agent.pyz")


def test_without_a_name_it_is_the_one_that_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_archive, "BUILT", tmp_path / "agent.pyz")
    assert AgentArchive.read(None) is None
    (tmp_path / "agent.pyz").write_bytes(b"PK")
    assert AgentArchive.read(None) is not None
