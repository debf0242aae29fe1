"""End this machine from inside, where its cloud gives a machine a key to do so.

Vast.ai gives a container a key for itself (`CONTAINER_API_KEY`), RunPod a key for its pod (`RUNPOD_API_KEY`). Lambda
and TensorDock have no such thing, and shutting the system down there does not end the bill, so nothing is tried.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from bot.agent import http_calls
from bot.agent.settings import CLOUD_URL

TIMEOUT_S = 10.0
NO_FACILITY = (
    "This cloud has no way for a machine to end itself. GPU Shopper or a person ends it; after the approved end, this "
    "agent can only say so."
)


@dataclass(frozen=True)
class EndCall:
    """One HTTP call that ends or stops this machine."""

    method: str
    url: str
    key: str
    body: bytes | None = None


def calls(environment: Mapping[str, str]) -> tuple[EndCall, ...]:
    """Return the calls to try in turn; none where the cloud has no facility.

    What deletes the machine comes first, because a machine that is only stopped still pays for its disk.
    """
    container, key = environment.get("CONTAINER_ID"), environment.get("CONTAINER_API_KEY")
    if container and key:
        base = environment.get(CLOUD_URL) or "https://console.vast.ai"
        url = f"{base}/api/v0/instances/{_segment(container)}/"
        return EndCall("DELETE", url, key), EndCall("PUT", url, key, b'{"state": "stopped"}')
    pod, key = environment.get("RUNPOD_POD_ID"), environment.get("RUNPOD_API_KEY")
    if pod and key:
        # Reports differ on which of RunPod's interfaces takes a pod's own key, so all of them are tried.
        base = environment.get(CLOUD_URL) or "https://api.runpod.io"
        mutation = f"mutation {{ podTerminate(input: {{podId: {json.dumps(pod)}}}) }}"
        return (
            EndCall("DELETE", f"{base}/v2/pods/{_segment(pod)}", key),
            EndCall("POST", f"{base}/graphql", key, json.dumps({"query": mutation}).encode()),
            EndCall("POST", f"{base}/v2/pods/{_segment(pod)}/action", key, b'{"action": "stop"}'),
        )
    return ()


def _segment(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def send(call: EndCall) -> str:
    """Send a call. Returns "" when the cloud accepted it, else why not."""
    headers = {"Authorization": f"Bearer {call.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(call.url, call.body, headers, method=call.method)
    where = f"{call.method} {urllib.parse.urlsplit(call.url).path}"
    try:
        with http_calls.opener().open(request, timeout=TIMEOUT_S) as reply:
            # GraphQL reports an error in an answer that is otherwise fine.
            return f"{where} was refused" if b'"errors"' in reply.read(1 << 20) else ""
    except urllib.error.HTTPError as error:
        return f"{where} was answered with {error.code}"
    except http_calls.FAILURES as error:
        return f"{where} did not get through ({error})"


def end_machine(environment: Mapping[str, str], attempt: int) -> str:
    """Try the calls in turn until one is accepted. Returns "", else a sentence with what happened.

    From the third attempt on every call is sent: the machine still runs, whatever was accepted before.
    """
    tried = calls(environment)
    if not tried:
        return NO_FACILITY
    problems: list[str] = []
    for call in tried:
        problem = send(call)
        if problem:
            problems.append(problem)
        elif attempt < 3:
            return ""
    if len(problems) < len(tried):
        return ""
    return f"This machine can't end itself and tries again: {'; '.join(problems)}."
