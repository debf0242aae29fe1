"""Generate docs/schemas: the JSON Schemas of a job, and of the files that a plan writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import BaseModel

from bot.rules.jobs.document import JobDocument
from bot.services.plans.deliverables import CostEstimate, InstanceManifest, PlanHead


def _page(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> Callable[[], str]:
    def make() -> str:
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(mode=mode)}
        return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"

    return make


#: File name under `docs/` → the function that writes it. The plan's schema is about its head.
SCHEMAS: Mapping[str, Callable[[], str]] = {
    "schemas/job.json": _page(JobDocument, "validation"),
    "schemas/gpu_plan.json": _page(PlanHead, "serialization"),
    "schemas/cost_estimate.json": _page(CostEstimate, "serialization"),
    "schemas/instance_manifest.json": _page(InstanceManifest, "serialization"),
}
