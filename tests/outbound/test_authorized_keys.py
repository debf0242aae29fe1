"""Writing keys on a real SSH server whose commands are run by a real shell in a home folder of its own."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.outbound import ssh_login
from bot.outbound.ssh_login import Ran, SshLogin
from bot.rules.nodes.authorized_keys import READ_COMMAND, PersonKey, changed, read_file, replace_command, sent

OURS, CAROLS = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def line(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@pytest.fixture
async def login(tmp_path: Path) -> AsyncIterator[SshLogin]:
    """A server that lets in the keys of its own `.ssh/authorized_keys`, and greets before each command."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    file = tmp_path / ".ssh/authorized_keys"
    file.write_text(f"# of the image\n{line(OURS)} gpu-shopper\n")
    file.chmod(0o640)

    class Login(asyncssh.SSHServer):
        """Reads the file at each login, as sshd does."""

        def begin_auth(self, username: str) -> bool:
            return True

        def public_key_auth_supported(self) -> bool:
            return True

        def validate_public_key(self, username: str, key: Any) -> bool:
            shown = key.export_public_key("openssh").decode().split()[1]
            return any(shown in one.split() for one in file.read_text().splitlines())

    async def answer(process: Any) -> None:
        stdin = await process.stdin.read()
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            f"echo Welcome; {process.command}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        )
        out, _ = await shell.communicate(stdin.encode())
        process.stdout.write(out.decode())
        process.exit(shell.returncode or 0)

    host_key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=Login, process_factory=answer, server_host_keys=[host_key], config=None
    )
    shown = " ".join(host_key.export_public_key("openssh").decode().split()[:2])
    yield SshLogin("127.0.0.1", server.sockets[0].getsockname()[1], "ubuntu", shown, OURS)
    server.close()
    await server.wait_closed()


async def run(login: SshLogin, command: str, stdin: str = "") -> Ran:
    return await ssh_login.run(login, command, stdin=stdin, timeout_s=10.0)


async def test_a_persons_key_lets_them_in_until_it_is_removed(login: SshLogin, tmp_path: Path) -> None:
    carol = SshLogin(login.host, login.port, login.user, login.host_key, CAROLS)
    assert (await run(carol, "true")).problem is not None
    before = read_file((await run(login, READ_COMMAND)).output)
    assert before == (tmp_path / ".ssh/authorized_keys").read_text()
    after = changed(before, [PersonKey(line(CAROLS), "operator:carol")], [])
    assert (await run(login, replace_command(before), sent(after))).status == 0
    assert (await run(carol, "true")).status == 0
    file = tmp_path / ".ssh/authorized_keys"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (after, 0o640)
    assert [one.name for one in file.parent.iterdir()] == ["authorized_keys"]
    assert (await run(login, replace_command(after), sent(changed(after, [], [line(CAROLS)])))).status == 0
    assert (file.read_text(), (await run(carol, "true")).problem is not None) == (before, True)


async def test_a_file_that_somebody_changed_meanwhile_is_not_replaced(login: SshLogin, tmp_path: Path) -> None:
    file = tmp_path / ".ssh/authorized_keys"
    before = file.read_text()
    file.write_text(f"{before}{line(CAROLS)} by hand\n")
    assert (await run(login, replace_command(before), sent(before))).status == 1
    assert "by hand" in file.read_text()


async def test_a_link_stays_a_link_and_a_missing_file_is_not_read(login: SshLogin, tmp_path: Path) -> None:
    file, real = tmp_path / ".ssh/authorized_keys", tmp_path / "real keys"
    file.rename(real)
    file.symlink_to(real)
    before = real.read_text()
    assert (await run(login, replace_command(before), sent(f"{before}# more\n"))).status == 0
    assert (file.is_symlink(), real.read_text()) == (True, f"{before}# more\n")
    missing = READ_COMMAND.replace("authorized_keys", "nowhere")
    ran = await run(login, missing)
    assert (ran.status == 0, read_file(ran.output)) == (False, None)
