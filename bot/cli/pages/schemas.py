"""Generate docs/schemas: the JSON Schemas of the files that a plan writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pydantic import BaseModel

from bot.services.plans.deliverables import CostEstimate, InstanceManifest, PlanHead


def _page(model: type[BaseModel]) -> Callable[[], str]:
    def make() -> str:
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **model.model_json_schema(mode="serialization"),
        }
        return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"

    return make


#: File name under `docs/` → the function that writes it. The plan's schema is about its head.
SCHEMAS: Mapping[str, Callable[[], str]] = {
    "schemas/gpu_plan.json": _page(PlanHead),
    "schemas/cost_estimate.json": _page(CostEstimate),
    "schemas/instance_manifest.json": _page(InstanceManifest),
}
