"""Serve the agent's API as a process of its own, so that nothing a caller does reaches the watchdog or the check-ins.

The reporter writes one JSON object a line to its standard input: the certificate first, then each signed message. It
ends when its reporter does, and the next reporter starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import ssl
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn

from bot.agent import libraries, own_folder, settings
from bot.agent.api.access import Access
from bot.agent.api.app import Api
from bot.agent.api.protocol import ImpatientProtocol
from bot.agent.deadline import Deadline, Signed
from bot.agent.own_folder import folder_of

MOST_CONNECTIONS = 128


def main(_arguments: list[str], /) -> int:
    """Serve until the reporter is gone."""
    line = sys.stdin.readline()
    if not line:
        return 0  # The reporter ended before it had a certificate.
    found = settings.read(settings.environment_of_machine())
    folder = folder_of(found.environment)
    asyncio.run(_serve(found, folder.parent, json.loads(line)))
    os._exit(0)  # A thread may still wait for its input.


def keep_compiled(_arguments: list[str], /) -> int:
    """Import what the API loads later, too, and keep what was compiled; first what the API waits for."""
    with contextlib.suppress(ImportError):
        import pynvml  # type: ignore[import-untyped,unused-ignore] # noqa: F401, PLC0415 # Only this process waits for it.
    archive, folder = sys.argv[0], own_folder.of_this_machine()
    libraries.keep(archive, folder)
    libraries.compile_agent(archive)
    libraries.keep(archive, folder)
    return 0


def tls(certificate: str, key: str) -> ssl.SSLContext:
    """Return the server's side of TLS. The key is in memory only: `ssl` reads a file, so it is one without a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(context, certificate, key)
    return context


def load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Use this certificate from the next connection on; those that are open stay."""
    file = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(file, f"{certificate}\n{key}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def served(given: Mapping[str, Any]) -> str:
    """Return the line that says what is served: the port, and the certificate's SHA-256."""
    certificate = ssl.PEM_cert_to_DER_cert(given["certificate"])
    return json.dumps({"port": given["port"], "certificate_sha256": hashlib.sha256(certificate).hexdigest()})


async def _serve(found: settings.MachineSettings, folder: Path, first: Mapping[str, Any]) -> None:
    access = Access(Deadline(found.instance, found.public_key))
    api = Api(folder, access)
    config = uvicorn.Config(
        api.app(),
        host="0.0.0.0",  # noqa: S104 # The cloud maps the port; the token and TLS guard it.
        port=first["port"],
        http=ImpatientProtocol,
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="error",  # Each wrong call of a stranger would be a line in a file without a limit.
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=5,
    )
    config.load()
    context = config.ssl = tls(first["certificate"], first["key"])
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        said = json.loads(line)
        if "certificate" in said:
            load(context, said["certificate"], said["key"])
            print(served(said), flush=True)
            return
        api.status.reported = said
        access.accept(Signed(said["message"], said["signature"], said["at_boot_s"]))

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(take, line)
        loop.call_soon_threadsafe(setattr, server, "should_exit", True)

    threading.Thread(target=listen, daemon=True).start()
    serving = asyncio.create_task(server.serve())
    while not (server.started or serving.done()):  # noqa: ASYNC110 # uvicorn has no event for it.
        await asyncio.sleep(0.01)
    if server.started:
        print(served(first), flush=True)
    await serving
