"""The side of Lambda's API around the instances: regions, images, SSH keys, file systems, firewall, audit log."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import ApiSandbox
from providers.sandbox.lambda_cloud import faults as say
from providers.sandbox.lambda_cloud.account import LambdaAccount
from providers.sandbox.lambda_cloud.market import REGIONS, region

AUDIT_PAGE = 100
_FILE_SYSTEM_NAME = re.compile(r"[a-zA-Z]+[0-9a-zA-Z-]*")


class LambdaOtherRoutes(ApiSandbox[LambdaAccount]):
    """Handlers that touch no instance."""

    # ── SSH keys ─────────────────────────────────────────────────────────────────────────────────

    async def add_key(self, _request: Request, body: dict[str, Any]) -> Response:
        """Register a key. Without `public_key` one is generated, and its private half is shown this once."""
        account = self.account
        name, public_key = body.get("name"), body.get("public_key")
        if not isinstance(name, str) or not 1 <= len(name) <= 64 or len(str(public_key or "")) > 4096:
            return say.INVALID
        if self.fault("keys_added_meanwhile") is not None:
            account.add_key(name, str(public_key))
        once = self.fault("keys_taken_once") is not None
        if any(key["name"] == name or (once and key["public_key"] == public_key) for key in account.ssh_keys):
            return say.error(400, "global/duplicate", "An SSH key with this name already exists.")
        if public_key is None:
            made = account.add_key(name, f"ssh-ed25519 AAAA{account.new_id()} generated")
            return JSONResponse({"data": {**made, "private_key": "sandbox-private-key"}})
        return JSONResponse({"data": account.add_key(name, str(public_key))})

    async def delete_key(self, request: Request, _body: dict[str, Any]) -> Response:
        """Forget a key; instances keep what was injected."""
        keys = self.account.ssh_keys
        found = [key for key in keys if key["id"] == request.path_params["ref"]]
        for key in found:
            keys.remove(key)
        return JSONResponse({"data": {}}) if found else say.missing("SSH key")

    # ── file systems and firewall ────────────────────────────────────────────────────────────────

    async def add_file_system(self, _request: Request, body: dict[str, Any]) -> Response:
        """A new one in one region."""
        account = self.account
        name, place = str(body.get("name") or ""), str(body.get("region") or "")
        if not _FILE_SYSTEM_NAME.fullmatch(name) or len(name) > 60 or place not in REGIONS:
            return say.INVALID
        if any(fs["name"] == name for fs in account.file_systems):
            return say.error(400, "global/duplicate", "A filesystem with this name already exists.")
        made = {
            "id": account.new_id(),
            "name": name,
            "mount_point": f"/lambda/nfs/{name}",
            "created": self.now.isoformat(),
            "created_by": {"id": account.new_id(), "email": "ada@example.invalid", "status": "active"},
            "is_in_use": False,
            "region": region(place),
            "bytes_used": 0,
        }
        account.file_systems.append(made)
        return JSONResponse({"data": made})

    async def delete_file_system(self, request: Request, _body: dict[str, Any]) -> Response:
        """Delete one that no instance uses."""
        account = self.account
        found = next((fs for fs in account.file_systems if fs["id"] == request.path_params["ref"]), None)
        if found is None:
            return say.missing("Filesystem")
        if any(found["name"] in machine.file_systems for machine in account.listed()):
            return say.error(400, "filesystems/filesystem-in-use", "Filesystem is in use.")
        account.file_systems.remove(found)
        return JSONResponse({"data": {"deleted_ids": [found["id"]]}})

    async def put_rules(self, _request: Request, body: dict[str, Any]) -> Response:
        """Replaces the whole list."""
        rules = body.get("data")
        if not isinstance(rules, list) or not all(isinstance(rule, dict) and "protocol" in rule for rule in rules):
            return say.INVALID
        self.account.rules = rules
        return JSONResponse({"data": rules})

    # ── audit log ────────────────────────────────────────────────────────────────────────────────

    async def audit(self, request: Request, _body: dict[str, Any]) -> Response:
        """Events oldest first; `page_token` stands beside `data` and is null on the last page."""
        query = request.query_params
        try:
            start, end = (_time(query.get(name)) for name in ("start", "end"))
            skip = int(base64.urlsafe_b64decode(query.get("page_token", "").encode()) or b"0")
        except ValueError:
            return say.INVALID
        small = self.fault("audit_small_pages")
        rows = int(small.get("rows", 1)) if small is not None else AUDIT_PAGE
        kind = query.get("resource_type")
        events = [
            event
            for event in self.account.visible_events()
            if (start is None or datetime.fromisoformat(event["event_time"]) >= start)
            and (end is None or datetime.fromisoformat(event["event_time"]) <= end)
            and kind in {None, f"cloud.{event['resource_name']}"}
        ]
        more = len(events) > skip + rows
        token = base64.urlsafe_b64encode(str(skip + rows).encode()).decode() if more else None
        return JSONResponse({"data": events[skip : skip + rows], "page_token": token})


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time needs its zone")
    return at
