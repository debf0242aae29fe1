"""Lambda's file systems over HTTP: list, create, delete. They are billed by what is on them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import ApiSandbox, Handler
from providers.sandbox.lambda_cloud import faults as say
from providers.sandbox.lambda_cloud.account import LambdaAccount
from providers.sandbox.lambda_cloud.market import REGIONS, region
from providers.sandbox.network_volume import NetworkVolume, present

NAME = re.compile(r"[a-zA-Z]+[0-9a-zA-Z-]*")
NAME_MAX = 60
GIB = 1024**3
#: Dollars per GiB in use and hour.
USD_GB_H = Decimal("0.20") / 730


class FileSystems:
    """The handlers of a Lambda sandbox's file systems."""

    def __init__(self, sandbox: ApiSandbox[LambdaAccount]) -> None:
        self._sandbox = sandbox

    @property
    def _account(self) -> LambdaAccount:
        return self._sandbox.account

    def table(self) -> list[tuple[str, str, str, Handler]]:
        """Rows of method, path, group of calls and handler. A create is one of the account's creates, with their
        faults."""
        return [
            ("GET", "/file-systems", "list", self._list),
            ("POST", "/filesystems", "create", self._add),
            ("DELETE", "/filesystems/{ref}", "destroy", self._delete),
        ]

    def fill(self, ref: str, size_gb: int) -> None:
        """Somebody writes until so many GiB are on it: from then on they are billed."""
        volume, now = self._account.file_systems[ref], self._sandbox.now
        volume.size_gb = Decimal(size_gb)
        volume.meter.start("storage", now, size_gb * USD_GB_H)

    def problem(self, body: dict[str, Any]) -> Response | None:
        """What is wrong with the file systems that a launch names."""
        for ref in self.named(body):
            if ref is None:
                return say.missing("Filesystem")
            if self._account.file_systems[ref].region != body.get("region_name"):
                return say.WRONG_REGION
        return None

    def named(self, body: dict[str, Any]) -> list[str | None]:
        """The ids of the file systems that a launch mounts; None for one that is not there."""
        now, held = self._sandbox.now, self._account.file_systems
        by_name = {one.name: one.ref for one in held.values() if one.exists(now)}
        names = [by_name.get(name) for name in body.get("file_system_names") or []]
        ids = [str(mount.get("file_system_id")) for mount in body.get("file_system_mounts") or []]
        return [*names, *(ref if present(held, ref, now) is not None else None for ref in ids)]

    async def _list(self, _request: Request, _body: dict[str, Any]) -> Response:
        """One answer without pages, as documented."""
        now, short = self._sandbox.now, self._sandbox.fault_value("volumes_short", "rows", 0)
        there = [one for one in self._account.file_systems.values() if one.listed(now)]
        there = there if short is None else there[: int(short)]
        return JSONResponse({"data": [self._wire(one) for one in there]})

    async def _add(self, _request: Request, body: dict[str, Any]) -> Response:
        account, now = self._account, self._sandbox.now
        name, place = str(body.get("name") or ""), str(body.get("region") or "")
        if not NAME.fullmatch(name) or len(name) > NAME_MAX or place not in REGIONS:
            return say.INVALID
        if any(one.name == name and one.exists(now) for one in account.file_systems.values()):
            return say.error(400, "global/duplicate", "A filesystem with this name already exists.")
        lands_in_s = self._sandbox.lands_in_s()
        at = now + timedelta(seconds=lands_in_s)
        listed_s = account.lag_s("create_list_lag", account.engine.timing.list_lag_s)
        listed_at = at + timedelta(seconds=listed_s)
        made = NetworkVolume(
            ref=account.new_id(), name=name, size_gb=Decimal(0), region=place, created_at=at, shown_at=at,
            listed_at=listed_at,
        )  # fmt: skip
        account.file_systems[made.ref] = made
        self._sandbox.committed(made.ref, lands_in_s)
        return JSONResponse({"data": self._wire(made)})

    async def _delete(self, request: Request, _body: dict[str, Any]) -> Response:
        """Delete one that no instance uses."""
        found = present(self._account.file_systems, request.path_params["ref"], self._sandbox.now)
        if found is None:
            return say.missing("Filesystem")
        if self._is_used(found):
            return say.error(400, "filesystems/filesystem-in-use", "Filesystem is in use.")
        if self._sandbox.fault("destroy_not_done") is None:
            found.end(self._sandbox.now, 0.0)
        return JSONResponse({"data": {"deleted_ids": [found.ref]}})

    def _is_used(self, volume: NetworkVolume) -> bool:
        return any(volume.ref in machine.file_systems for machine in self._account.listed())

    def _wire(self, volume: NetworkVolume) -> dict[str, Any]:
        owner = {"id": volume.ref[::-1], "email": "ada@example.invalid", "status": "active"}
        return {
            "id": volume.ref,
            "name": volume.name,
            "mount_point": f"/lambda/nfs/{volume.name}",
            "created": volume.created_at.isoformat(),
            "created_by": owner,
            "is_in_use": self._is_used(volume),
            "region": region(volume.region),
            "bytes_used": int(volume.size_gb * GIB),
        }
