"""The line that connects to a machine, the same at every door."""

from __future__ import annotations

from ledger.models import Instance


def ssh_command(row: Instance) -> str:
    """The line to type. A host or user that could be read as an option or a shell word is not put into it."""
    host, user = row.ssh_host or "", row.ssh_user or "root"
    port = f"-p {row.ssh_port} " if row.ssh_port else ""
    return f"ssh {port}{user}@{host}" if _is_plain(host) and _is_plain(user) else f"ssh {port}(see host and user below)"


def _is_plain(word: str) -> bool:
    return bool(word) and not word.startswith("-") and all(c.isascii() and (c.isalnum() or c in ".-_:") for c in word)
