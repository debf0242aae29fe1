"""The agent on a rented machine: its start, its memory, what its chat proxy adds, and files of 2 GiB.

Memory is the proportional set size (PSS): a page that several processes share is counted once, in parts. The agent is
the built file, `make agent`. Its chat calls go to a small local server, directly and through the proxy, in turns.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from bot.agent.own_folder import FOLDER
from tests.agent.api_machine import TOKEN, Machine, claims
from tests.agent.service import Service, service
from tests.bench.api import Line

BUILT = Path("dist/gpu-shopper-agent.pyz")
STARTS, CALLS = 5, 400
#: What runs the agent; another one for a comparison of Pythons.
PYTHON = os.environ.get("AGENT_PYTHON", sys.executable)
#: So many callers at once under load.
CALLERS = 8
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FILE_BYTES, DROPS = 2 << 30, 5
#: A local server that answers at once, in a process of its own.
LOCAL_SERVER = """
import sys, http.server, socket
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"choices": []}'
        head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
        self.wfile.write(head + body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass
class Running:
    """One running agent, and when it first did something, in seconds after its start."""

    folder: Path
    machine: Machine
    watchdog: int
    checked_in_s: float
    up_s: float
    #: The processor time of all its processes until then.
    used_s: float = 0.0

    def processes(self) -> dict[str, int]:
        """Its processes by what they are."""
        (reporter,) = _children(self.watchdog)
        # Beside it a process may read the GPUs for a moment.
        (api,) = (one for one in _children(reporter) if b"serve-api" in Path(f"/proc/{one}/cmdline").read_bytes())
        return {"watchdog": self.watchdog, "reporter": reporter, "API": api}


def measure() -> Iterator[Line]:
    """Yield what the start takes, the memory, and the chat proxy's part of a call."""
    runs = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(STARTS):
            with _agent(Path(name), first=number == 0) as running:
                runs.append((running.checked_in_s, running.up_s, running.used_s))
                if number == STARTS - 1:
                    yield from _memory(running)
                    yield from _chat(running)
    yield "first check-in, first start", f"{runs[0][0] * 1000:.0f} ms", "aim ≤ 500 ms"
    yield "first check-in, later starts", f"{median(one for one, *_ in runs[1:]) * 1000:.0f} ms", "aim ≤ 500 ms"
    yield "API up, first start (libraries compiled)", f"{runs[0][1]:.2f} s", "aim ≤ 2 s"
    yield "processor time of that first start", f"{runs[0][2]:.2f} s", ""
    yield "API up, later starts", f"{median(one for _, one, _ in runs[1:]):.2f} s", "aim ≤ 2 s"
    yield "processor time of a later start", f"{median(one for *_, one in runs[1:]):.2f} s", ""


def measure_files() -> Iterator[Line]:
    """Yield what 2 GiB up and down take, with dropped connections, and the API's memory meanwhile."""
    with tempfile.TemporaryDirectory() as name, _agent(Path(name), first=True) as running:
        pid = running.processes()["API"]
        before_kb = _kb(pid, "status", "VmHWM")
        block = secrets.token_bytes(1 << 20)
        digest = hashlib.sha256()
        for number in range(FILE_BYTES >> 20):
            digest.update(number.to_bytes(8, "big") + block[8:])
        began_s = time.perf_counter()
        tries = _upload(running.machine, block, digest.hexdigest())
        took_s = time.perf_counter() - began_s
        yield "2 GiB up", f"{took_s:.1f} s", f"{tries - 1} dropped connections, SHA-256 checked by the API"
        began_s = time.perf_counter()
        tries = _download(running.machine, digest.hexdigest())
        took_s = time.perf_counter() - began_s
        yield "2 GiB down", f"{took_s:.1f} s", f"{tries - 1} dropped connections, SHA-256 equal"
        grew_kb = _kb(pid, "status", "VmHWM") - before_kb
        yield "the API's largest memory grew by", f"{grew_kb / 1024:.1f} MB", "flat"


def _memory(running: Running) -> Iterator[Line]:
    total_kb = 0
    for name, pid in running.processes().items():
        pss_kb, rss_kb = _kb(pid, "smaps_rollup", "Pss"), _kb(pid, "status", "VmRSS")
        total_kb += pss_kb
        aim = "aim for its resident memory ≤ 25 MB" if name == "watchdog" else ""
        yield f"{name}, PSS (resident)", f"{pss_kb / 1000:.1f} ({rss_kb / 1000:.1f}) MB", aim
    yield "all three, PSS", f"{total_kb / 1000:.1f} MB", "aim ≤ 80 MB"


def _chat(running: Running) -> Iterator[Line]:
    local = subprocess.Popen([sys.executable, "-c", LOCAL_SERVER], stdout=subprocess.PIPE, text=True)
    assert local.stdout is not None
    port = int(local.stdout.readline())
    (running.folder / "serve.json").write_text(f'{{"port": {port}, "model": "org/name"}}')
    try:
        with _caller(running.machine) as through, httpx.Client(trust_env=False) as straight:
            direct = (straight, f"http://127.0.0.1:{port}/v1/chat/completions")
            for at_once in (1, CALLERS):
                yield from _compared(running.processes()["API"], direct, (through, "llm/chat"), at_once)
    finally:
        local.kill()
        local.wait()
        local.stdout.close()


def _compared(
    api: int, direct: tuple[httpx.Client, str], through: tuple[httpx.Client, str], at_once: int
) -> Iterator[Line]:
    """Yield what the same call takes both ways, in turns, with so many callers at once."""
    body = {"model": "org/name", "messages": [{"role": "user", "content": "Hi " * 100}]}

    def timed(way: tuple[httpx.Client, str]) -> float:
        began_s = time.perf_counter()
        reply = way[0].post(way[1], json=body)
        took_s = time.perf_counter() - began_s
        assert reply.status_code == 200, reply.text
        return took_s

    took: dict[str, list[float]] = {"direct": [], "through": []}
    before_s = _processor_s(api)
    with ThreadPoolExecutor(at_once) as pool:
        for _ in range(CALLS // at_once):
            took["direct"] += pool.map(timed, [direct] * at_once)
            took["through"] += pool.map(timed, [through] * at_once)
    used_ms = (_processor_s(api) - before_s) * 1000 / len(took["through"])
    direct_ms, proxy_ms = median(took["direct"]) * 1000, median(took["through"]) * 1000
    callers = "1 caller" if at_once == 1 else f"{at_once} at once"
    yield f"chat directly, median, {callers}", f"{direct_ms:.2f} ms", f"{len(took['direct'])} calls each, in turns"
    yield (
        f"chat through the API and TLS, {callers}",
        f"{proxy_ms:.2f} ms",
        f"of the API's processor: {used_ms:.2f} ms",
    )
    yield f"the API adds, {callers}", f"{proxy_ms - direct_ms:.2f} ms", "aim < 2 ms" if at_once == 1 else ""


def _upload(machine: Machine, block: bytes, sha256: str) -> int:
    """Send the file, with a connection that drops now and then; return how many calls it took."""
    offset, tries = 0, 0
    while True:
        tries += 1
        stop = (FILE_BYTES * tries // (DROPS + 1)) if tries <= DROPS else FILE_BYTES
        asked: dict[str, str | int] = {"path": "big.bin", "size": FILE_BYTES, "sha256": sha256, "offset": offset}
        with _caller(machine) as caller:
            try:
                reply = caller.post("files/upload", params=asked, content=_sent(block, offset, stop))
            except httpx.HTTPError:
                reply = None
            if reply is not None and reply.status_code == 200:
                return tries
            while True:  # What the broken call still writes ends soon.
                reply = caller.post("files/upload", params=asked | {"offset": FILE_BYTES})
                if "offset" in reply.json().get("data", {}):
                    break
                time.sleep(0.1)
            offset = reply.json()["data"]["offset"]


def _sent(block: bytes, offset: int, stop: int) -> Iterator[bytes]:
    for number in range(offset >> 20, FILE_BYTES >> 20):
        if number << 20 >= stop:
            raise httpx.WriteError("the connection drops")
        piece = number.to_bytes(8, "big") + block[8:]
        yield piece[offset - (number << 20) :] if number == offset >> 20 else piece


def _download(machine: Machine, sha256: str) -> int:
    at, tries, digest, tag = 0, 0, hashlib.sha256(), ""
    while at < FILE_BYTES:
        tries += 1
        stop = FILE_BYTES * tries // (DROPS + 1)
        headers = {"Range": f"bytes={at}-", "If-Range": tag} if tag else {}
        with _caller(machine) as caller, caller.stream("GET", "files/download/big.bin", headers=headers) as reply:
            assert reply.status_code == (206 if tag else 200)
            tag = reply.headers["etag"]
            for chunk in reply.iter_raw():
                digest.update(chunk)
                at += len(chunk)
                if at >= stop and tries <= DROPS:
                    break  # The connection drops.
    assert digest.hexdigest() == sha256
    return tries


def _caller(machine: Machine) -> httpx.Client:
    context = ssl.create_default_context(cadata=machine.certificate)
    context.check_hostname = False
    url = f"https://127.0.0.1:{machine.port}/node/v1"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.Client(base_url=url, headers=headers, verify=context, timeout=120, trust_env=False)


@contextmanager
def _agent(folder: Path, *, first: bool) -> Iterator[Running]:
    """Start the built agent, with nothing unpacked or compiled yet where it is the first; wait until its API serves."""
    if not BUILT.exists():
        raise SystemExit(f"{BUILT} is missing. Run: make agent")
    with service() as here:
        machine = Machine(here)
        variables = {"PATH": os.environ["PATH"], FOLDER: str(folder / "run"), **here.environment()}
        began_s = time.perf_counter()
        process = subprocess.Popen([PYTHON, str(BUILT)], env=variables, start_new_session=True)
        try:
            yield _when_up(here, machine, folder, process.pid, began_s)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert first or (folder / "run").is_dir()


def _when_up(here: Service, machine: Machine, folder: Path, pid: int, began_s: float) -> Running:
    here.wait(bool)
    checked_in_s = time.perf_counter() - began_s
    while True:
        try:
            if machine.get("status").status_code == 200:
                break
        except httpx.HTTPError:
            time.sleep(0.01)
    up_s = time.perf_counter() - began_s
    here.wait(lambda calls: bool(claims(calls)))
    running = Running(folder, machine, pid, checked_in_s, up_s)
    running.used_s = sum(map(_processor_s, running.processes().values()))
    return running


def _processor_s(pid: int) -> float:
    """The processor time of a process and of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _kb(pid: int, file: str, name: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(name)
