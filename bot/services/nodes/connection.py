"""Build the commands and addresses that connect to an instance, the same for every client."""

from __future__ import annotations

from ledger.models import Instance, Node

SSH_PORT = 22


def ssh_command(row: Instance) -> str:
    """Return the SSH command to type, without a host or user that could be read as an option or shell word."""
    host, user = row.ssh_host or "", row.ssh_user or "root"
    port = f"-p {row.ssh_port} " if row.ssh_port else ""
    return (
        f"ssh {port}{user}@{host}"
        if is_plain(host) and is_plain(user)
        else f"ssh {port}(host and user: see its details)"
    )


def known_hosts(row: Instance) -> str | None:
    """Return the line for `~/.ssh/known_hosts`, so that `ssh` asks nothing; None without a key or a plain address."""
    host, port = row.ssh_host or "", row.ssh_port or SSH_PORT
    if not row.host_key or not is_plain(host):
        return None
    return f"{host if port == SSH_PORT else f'[{host}]:{port}'} {row.host_key}"


def api_url(row: Instance, node: Node | None) -> str | None:
    """Return the URL of the instance's own API: the address that its cloud shows, and the port that its agent named."""
    host = row.ssh_host or ""
    if node is None or node.api_port is None or not is_plain(host):
        return None
    return f"https://{f'[{host}]' if ':' in host else host}:{node.api_port}"


def is_plain(word: str) -> bool:
    """Whether a host or user can't be read as an option or as a shell's word."""
    return bool(word) and not word.startswith("-") and all(c.isascii() and (c.isalnum() or c in ".-_:") for c in word)
