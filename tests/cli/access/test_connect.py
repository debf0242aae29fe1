"""The commands that log in and copy: real programs of OpenSSH, a real SSH server, and the exit code of what ran."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncssh
import pytest

from bot.cli.access.settings import operator
from bot.services.nodes import machine_logs
from ledger.core import amend
from ledger.models import Instance
from tests.cli.test_commands import elsewhere
from tests.cli.test_doors import Terminal, terminal
from tests.services.nodes.test_key_writes import machine as inside_of
from tests.support.wire import RealReach

__all__ = ["elsewhere", "terminal"]

PROGRAM = "from bot.cli import main; main()"


@dataclass
class Machine:
    """The machine of a running session: a real SSH server that lets one key in."""

    terminal: Terminal
    short: str
    home: Path

    async def run(
        self,
        *arguments: str,
        until: str = "",
        then: Callable[[], Awaitable[None]] | None = None,
        **env: str,
    ) -> tuple[int, str, str]:
        """Run the program as a process; once it printed `until`, do `then` and press Ctrl-C."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            *arguments,
            cwd=self.home,
            env=dict(os.environ) | {"XDG_STATE_HOME": str(self.home / "my state")} | env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        first = b""
        if until:
            while until.encode() not in first:
                first += await process.stdout.readline()
            if then is not None:
                await then()
            process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        return process.returncode or 0, (first + out).decode(), err.decode()


def _line(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


class _Forwarding(asyncssh.SSHServer):
    """A server through which tunnels lead to this computer's own ports."""

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Let every tunnel through."""
        return True


async def _ran(process: asyncssh.SSHServerProcess[str]) -> None:
    process.stdout.write(f"ran {process.command}\n")
    if process.command == "sleep 60":
        await asyncio.sleep(60)
    process.exit(7)


@pytest.fixture
async def machine(terminal: Terminal, tmp_path: Path) -> AsyncIterator[Machine]:
    """A session whose machine is an SSH server of this test; the person's key is in `key`."""
    w = terminal.w
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    key = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "key").write_bytes(key.export_private_key())
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "login").write_bytes(key.export_public_key())
    host = asyncssh.generate_private_key("ssh-ed25519")
    request_id = await w.running(operator(), candidates=("vast",))
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host],
        authorized_client_keys=str(tmp_path / "login"),
        server_factory=_Forwarding,
        process_factory=_ran,
        sftp_factory=True,
        allow_scp=True,
        encoding="utf-8",
    )
    (row,) = (await w.books()).instances
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, ssh_host="127.0.0.1", ssh_port=server.get_port(), host_key=_line(host))
    terminal.far()
    yield Machine(terminal, request_id[-6:], tmp_path)
    server.close()
    await server.wait_closed()


@pytest.mark.slow
async def test_people_log_in_run_commands_and_copy_files_with_their_own_programs(machine: Machine) -> None:
    m = machine
    assert await m.run("ssh", "-i", "key", m.short, "nvidia-smi", "-L") == (7, "ran nvidia-smi -L\n", "")
    assert (await m.run("ssh", "-i", "key", m.short, "--", "true"))[:2] == (7, "ran true\n")
    (m.home / "here.txt").write_text("weights")
    # -O: the test server's SFTP part ends without an exit code.
    there = m.home / "there.txt"
    assert await m.run("scp", "-O", "-i", "key", "here.txt", f"{m.short}:{there}") == (0, "", "")
    assert await m.run("scp", "-O", "-i", "key", f"{m.short}:{there}", "back.txt") == (0, "", "")
    assert (m.home / "back.txt").read_text() == "weights"
    code, _, _ = await m.run("ssh", "-i", "key", m.short, "sleep 60", until="ran sleep 60")
    assert code in (-signal.SIGINT, 255)


@pytest.mark.slow
async def test_a_tunnel_leads_to_a_port_of_the_machine_until_ctrl_c(machine: Machine) -> None:
    m = machine
    seen: list[bytes] = []

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a page")
        writer.close()

    async def visit() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", here)
        seen.append(await reader.read())
        writer.close()

    page = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = page.sockets[0].getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as free:
        here = free.getsockname()[1]
    # A person's own configuration names the key; this one also says when the tunnel is there.
    own = m.home / "ssh_config"
    own.write_text(f"IdentityFile {m.home / 'key'}\nPermitLocalCommand yes\nLocalCommand echo up\n")
    tools = m.home / "bin"
    tools.mkdir()
    (tools / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {own} "$@"\n')
    (tools / "ssh").chmod(0o755)
    line = ("open", m.short, str(port), "--local", str(here))
    code, _, err = await m.run(*line, until="up", then=visit, PATH=f"{tools}:{os.environ['PATH']}")
    assert (seen, code in (-signal.SIGINT, 255)) == ([b"a page"], True)
    assert f"http://localhost:{here} leads to port {port} of session {m.short}. Ctrl-C ends the tunnel." in err
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said", "code", "out", "err"),
    [
        ("jupyter", "started tok", 0, "http://localhost:8888/lab?token=tok\n", "leads to port 8888 of session"),
        ("tensorboard", "own tok", 0, "http://localhost:6006/\n", "leads to port 6006 of session"),
        ("jupyter", "other", 0, "", "Another program listens on port 8888 already, so nothing was started."),
        (
            "jupyter",
            "missing",
            1,
            "",
            "has no jupyter. Request one with `install=train`, or install it: `gpu-",
        ),
        ("jupyter", "failed\nno config", 1, "", "The end of its log:\nno config"),
        ("jupyter", "", 255, "", "The login to session"),
    ],
)
async def test_a_named_program_is_started_or_why_it_is_not_is_said(
    machine: Machine, name: str, said: str, code: int, out: str, err: str
) -> None:
    tools = machine.home / "bin"
    tools.mkdir()
    # The second call is the tunnel; the first one has the token on its standard input, and no key of the API.
    script = f"""#!/bin/sh
case "$*" in *ExitOnForwardFailure*) exit 0 ;; esac
read -r token
[ ${{#token}} -eq 32 ] && [ -z "$GPU_SHOPPER_API_KEY" ] || exit 9
printf '{said}\n'
exit {255 if not said else 0}
"""
    (tools / "ssh").write_text(script)
    (tools / "ssh").chmod(0o755)
    ended = await machine.run("open", machine.short, name, PATH=str(tools))
    assert (ended[0], ended[1]) == (code, out)
    assert err in ended[2]


@pytest.mark.slow
async def test_the_editor_gets_an_entry_with_which_ssh_connects(machine: Machine) -> None:
    m = machine
    code, out, err = await m.run("open", m.short, "VSCode", HOME=str(m.home))
    folder = m.home / "my state/gpu-shopper/ssh_config"
    (row,) = (await m.terminal.w.books()).instances
    home = "/root" if row.ssh_user == "root" else f"/home/{row.ssh_user}"
    assert (code, out) == (0, f"vscode://vscode-remote/ssh-remote+gpu-shopper-{m.short}{home}\n")
    assert err.splitlines() == ["Add this line at the top of ~/.ssh/config, once:", f'Include "{folder}/*"']
    config = m.home / ".ssh/config"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f'Include "{folder}/*"\n')
    code, _, err = await m.run("open", m.short, "vscode", HOME=str(m.home))
    assert (code, err) == (0, "")
    words = ("-F", str(config), "-i", str(m.home / "key"), "-o", "BatchMode=yes", f"gpu-shopper-{m.short}", "true")
    ssh = await asyncio.create_subprocess_exec("ssh", *words)
    assert await ssh.wait() == 7  # As its server answers every command.


@pytest.mark.slow
async def test_another_machine_at_that_address_and_a_missing_program_are_refused(machine: Machine) -> None:
    m = machine
    (row,) = (await m.terminal.w.books()).instances
    async with m.terminal.w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, host_key=_line(asyncssh.generate_private_key("ssh-ed25519")))
    code, out, err = await m.run("ssh", "-i", "key", m.short, "true")
    assert (code, out, "Host key verification failed." in err) == (255, "", True)
    tools = m.home / "bin"
    tools.mkdir()
    code, _, err = await m.run("rsync", "-av", f"{m.short}:/out/", "out/", PATH=str(tools))
    assert (code, err.split(".")[0]) == (127, "`rsync` isn't installed on this computer")
    rsync = tools / "rsync"
    rsync.write_text('#!/bin/sh\nprintf "%s|" "$@" "$GPU_SHOPPER_API_KEY"\n')
    rsync.chmod(0o755)
    code, out, _ = await m.run("rsync", "-av", f"{m.short}:/out/", "out/", PATH=str(tools))
    option, shell, *words = out.split("|")
    assert (code, option, words) == (0, "-e", ["-av", f"gpu-shopper-{m.short}:/out/", "out/", "", ""])
    assert shell.startswith("ssh -o HostName=127.0.0.1 -o Port=")
    (tools / "ssh").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (tools / "ssh").chmod(0o755)
    # Without a service's address, the person's own ssh follows it.
    line = ("logs", m.short, "-f", "-n", "7")
    code, out, _ = await m.run(*line, GPU_SHOPPER_URL="", GPU_SHOPPER_API_KEY="", PATH=str(tools))
    assert (code, f"|gpu-shopper-{m.short}|" in out, 'tail -n 7 -F -- "$f"|' in out) == (0, True, True)


async def test_a_log_is_followed_through_the_service_and_says_why_it_ends(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_logs, "LOOK_EVERY", timedelta(seconds=0.05))
    t, w = terminal, terminal.w
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    request_id = await w.running(operator(), candidates=("vast",))
    t.far()
    (await inside_of(w))[1].files["job.log"] = b"step 1\nstep 2\n"
    following = asyncio.create_task(t.run("logs", request_id[-6:], "-f", "-n", "1"))
    while not (await asyncio.wait({following}, timeout=0.05))[0]:
        w.clock.advance(901)
    code, out, err = await following
    assert (code, out, err) == (0, "step 2\n", "A stream lasts 15 minutes. Start it again.\n")


async def test_what_cannot_be_connected_to_is_said_in_a_sentence(terminal: Terminal) -> None:
    t = terminal
    t.far()
    short = (await t.w.approved(operator(), candidates=("vast",)))[-6:]
    for line, code, said in (
        (("ssh",), 2, "is missing"),
        (("ssh", "-v"), 2, "Name the session"),
        (("ssh", "../keys"), 2, 'No session "../keys". Run `gpu-shopper sessions`.'),
        (("ssh", "zzzzzz"), 2, 'No session "zzzzzz". Run `gpu-shopper sessions`.'),
        (("ssh", short), 1, f"Session {short} isn't ready yet."),
        (("scp", "a", "b"), 2, "Name the session in a path, such as `gpu-shopper scp 4k7m2p:/workspace/out.pt .`."),
        (("scp", "data:old", f"{short}:"), 2, "A local file with a colon is written ./"),
        (("rsync", "-a", f"{short}:x", "."), 1, f"Session {short} isn't ready yet."),
        (("logs", short), 1, f"Session {short} isn't ready yet."),
        (("logs", short, "-f"), 1, f"Session {short} isn't ready yet."),
        (("logs", short, "--source", "jobs"), 2, "job"),
        (("open", short, "70000"), 2, '"70000" is not a port from 1 to 65535, jupyter, tensorboard or vscode.'),
        (("open", short, "jupyter"), 1, f"Session {short} isn't ready yet."),
        (("connect",), 2, "Did you mean `gpu-shopper ssh ID`?"),
    ):
        ended, out, err = await t.run(*line)
        assert (ended, out, said in err.replace("\n", " ")) == (code, "", True), (line, err)
