"""`gpu-shopper ssh`, `scp`, `rsync` and `open`: the system's own programs, on the machine of a session."""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer

from bot.api.schemas.sessions import LoginOut
from bot.cli.access import ssh_client
from bot.cli.access.api_client import ApiClient, elsewhere, spoken
from bot.cli.access.ssh_client import Destination, become, destination, operands, remote_paths, run_program
from bot.cli.terminal.options import Json, Named, plain_id
from bot.cli.terminal.screen import fail, say
from bot.cli.terminal.terminal_tables import show_result
from bot.logs import visible
from bot.rules.nodes.machine_logs import LINES, LINES_MAX, LogSource, tail_command
from bot.rules.nodes.named_programs import NAMED_PROGRAMS, NamedProgram, Start, StartFound, read_start, start_script
from ledger.kernel.ids import short_id
from ledger.kernel.ports import HIGHEST, Port

#: Everything is passed on as it was typed, so that these commands take what the programs take.
AS_TYPED = {"ignore_unknown_options": True, "allow_interspersed_args": False}

ssh_app = typer.Typer(add_completion=False)
scp_app = typer.Typer(add_completion=False)
rsync_app = typer.Typer(add_completion=False)
open_app = typer.Typer(add_completion=False)


#: The editor that connects by itself, with an entry of its own in ssh's configuration.
VSCODE = "vscode"
_LISTED = " or ".join((", ".join(NAMED_PROGRAMS), VSCODE))


@ssh_app.command(context_settings=AS_TYPED)
def ssh(
    arguments: Annotated[
        list[str], typer.Argument(help="What ssh takes, with the session in place of the host.", metavar="ID [COMMAND]")
    ],
) -> None:
    """Log in to a session's machine, or run a command there, with your own ssh, its options and its configuration.

    The host key comes from GPU Shopper, so ssh asks nothing and accepts no other machine. Examples:
    `gpu-shopper ssh 4k7m2p`, `gpu-shopper ssh 4k7m2p nvidia-smi`, `gpu-shopper ssh -L 8888:localhost:8888 4k7m2p`.
    """
    places = operands("ssh", arguments)
    if not places:
        fail("Name the session, such as `gpu-shopper ssh 4k7m2p`.", 2)
    place = places[0]
    at = _found(arguments[place])
    after = arguments[place + 1 :]
    rest = after[1:] if after[:1] == ["--"] else after
    become("ssh", (*at.options, *arguments[:place], at.name, *rest))


def logs(
    session: Named,
    source: Annotated[LogSource, typer.Option(help="Which log.")] = LogSource.JOB,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=LINES_MAX, help="How many lines.")] = LINES,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what is added, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show the end of a log on a session's machine, or follow it until Ctrl-C.

    With a service's address (`GPU_SHOPPER_URL`), the service reads the log, so you need no SSH key. Without one, your
    own ssh follows it.

    Examples: `gpu-shopper logs 4k7m2p`, `gpu-shopper logs 4k7m2p -f`, `gpu-shopper logs 4k7m2p --source startup`.
    """
    named = plain_id(session, "sessions")
    if follow and elsewhere():
        _follow(f"/sessions/{named}/logs", source, lines)
        return
    if follow:
        at = _found(session)
        become("ssh", (*at.options, at.name, tail_command(source, lines, follow=True)))
    found = spoken(lambda api: api.get(f"/sessions/{named}/logs", source=str(source), lines=lines))
    if as_json:
        show_result(found, as_json=True)
        return
    for line in found["lines"]:
        say(line)


def _follow(path: str, source: LogSource, lines: int) -> None:
    """Print the lines of a service's stream as they come, and then why it ended."""

    async def stream(api: ApiClient) -> None:
        ended = ""
        async for line in api.lines(path, source=str(source), lines=lines, follow="true"):
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                ended = str(event.get("sentence", ""))
                if "line" in event:
                    say(str(event["line"]))
        say(ended or "The connection to the service ended.", stderr=True)

    spoken(stream)


@scp_app.command(context_settings=AS_TYPED)
def scp(
    arguments: Annotated[
        list[str], typer.Argument(help="What scp takes; ID:path is on the machine.", metavar="SOURCE... TARGET")
    ],
) -> None:
    """Copy files to or from a session's machine with your own scp.

    Examples: `gpu-shopper scp 4k7m2p:/workspace/out.pt .`, `gpu-shopper scp -r data 4k7m2p:/workspace/`.
    """
    at, words = _copied("scp", arguments)
    become("scp", (*at.options, *words))


@rsync_app.command(context_settings=AS_TYPED)
def rsync(
    arguments: Annotated[
        list[str], typer.Argument(help="What rsync takes; ID:path is on the machine.", metavar="SOURCE... TARGET")
    ],
) -> None:
    """Copy what has changed to or from a session's machine with your own rsync, which the machine needs as well.

    Example: `gpu-shopper rsync -av --partial 4k7m2p:/workspace/checkpoints/ checkpoints/`.
    """
    at, words = _copied("rsync", arguments)
    become("rsync", ("-e", ssh_client.shell_words(at), *words))


@open_app.command(name="open")
def open_(
    session: Named,
    port: Annotated[str, typer.Argument(help=f"A port on the machine, or {_LISTED}.")],
    local: Annotated[
        int | None, typer.Option(min=1, max=HIGHEST, help="The port on this computer, if not the same.")
    ] = None,
    tunnel: Annotated[bool, typer.Option("--tunnel", help="Use a tunnel also where the cloud opens the port.")] = False,
) -> None:
    """Print where a port of the machine is reached; where the cloud doesn't open it, hold an SSH tunnel to it.

    With `jupyter` or `tensorboard`, start it there if nothing listens yet, and hold a tunnel to it.
    With `vscode`, print the address that opens the machine in Visual Studio Code.
    """
    if port.lower() == VSCODE:
        _open_editor(session)
        return
    program = NAMED_PROGRAMS.get(port.lower())
    number = program.port if program else _port(port)
    found = _login(session)
    at, short = destination(found), short_id(found.request_id)
    started = _started(at, program, short) if program else None
    address = next((one.address for one in found.ports if one.port == number and one.address), None)
    # What was started here listens on the machine alone, whatever its cloud opens.
    if address and not (tunnel or local) and (started is None or started.start is Start.OTHER):
        say(address)
        return
    here = local or number
    if program and started and started.start is not Start.OTHER:
        # Its person needs the token, so this line alone is not redacted.
        typer.echo(visible(program.address(here, started.token)))
    say(f"http://localhost:{here} leads to port {number} of session {short}. Ctrl-C ends the tunnel.", stderr=True)
    forward = ("-N", "-o", "ExitOnForwardFailure=yes", "-L", f"localhost:{here}:localhost:{number}")
    become("ssh", (*at.options, *forward, at.name))


def _started(at: Destination, program: NamedProgram, short: str) -> StartFound:
    """Start a program on the machine over SSH unless something listens on its port; ends the program where it fails."""
    token = secrets.token_urlsafe(24)
    status, output = run_program("ssh", (*at.options, at.name, start_script(program)), f"{token}\n")
    if status:
        fail(f"The login to session {short} failed, so {program.name} was not started.", status)
    found = read_start(output)
    if found.start is Start.MISSING:
        fail(
            f"The machine of session {short} has no {program.name}. Request one with `install=train`, or install it: "
            f"`gpu-shopper ssh {short} pip install {program.package}`."
        )
    if found.start is Start.FAILED:
        fail(f"{program.name} did not start on the machine of session {short}. The end of its log:\n{found.log}")
    if found.start is Start.OTHER:
        say(f"Another program listens on port {program.port} already, so nothing was started.", stderr=True)
    return found


def _open_editor(session: str) -> None:
    """Write the machine's entry for ssh, and print the address that Visual Studio Code opens."""
    found = _login(session)
    at = destination(found)
    entries = ssh_client.write_entry(at)
    if not ssh_client.includes(entries):
        say(f'Add this line at the top of ~/.ssh/config, once:\nInclude "{entries}/*"', stderr=True)
    home = "/root" if found.user == "root" else f"/home/{found.user}"
    say(f"vscode://vscode-remote/ssh-remote+{at.name}{home}")


def _port(text: str) -> int:
    try:
        return Port.read(text).number
    except ValueError:
        fail(f'"{text[:40]}" is not a port from 1 to {HIGHEST}, {_LISTED}.', 2)


def _copied(program: str, arguments: list[str]) -> tuple[Destination, list[str]]:
    """Return the machine that the paths name, and the arguments with its name in place of the session's id."""
    paths = remote_paths(program, arguments)
    named = dict.fromkeys(session for session, _ in paths.values())
    if not named:
        fail(f"Name the session in a path, such as `gpu-shopper {program} 4k7m2p:/workspace/out.pt .`.", 2)
    if len(named) > 1:
        first, second = list(named)[:2]
        fail(f'"{first}" and "{second}" can\'t be used at once. A local file with a colon is written ./{second}:…', 2)
    at = _found(next(iter(named)))
    return at, [f"{at.name}:{paths[place][1]}" if place in paths else word for place, word in enumerate(arguments)]


def _found(session: str) -> Destination:
    return destination(_login(session))


def _login(session: str) -> LoginOut:
    """Return how to log in to the machine of a session; ends the program with the reason where nobody can."""
    named = plain_id(session, "sessions")
    return LoginOut.model_validate(spoken(lambda api: api.get(f"/sessions/{named}/ssh")))
