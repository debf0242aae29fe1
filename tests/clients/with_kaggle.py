"""Kaggle's own client, walked against KAGGLE_API_URL: it has no such setting, so its table of endpoints is changed."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import kagglesdk.kaggle_env as endpoints
from kagglesdk.kernels.types.kernels_api_service import ApiGetAcceleratorQuotaStatisticsRequest as Quota

endpoints._env_to_endpoint[endpoints.KaggleEnv.PROD] = os.environ["KAGGLE_API_URL"]

import kaggle  # noqa: E402 # It authenticates when it is imported.

api, user = kaggle.api, os.environ["KAGGLE_USERNAME"]
said: dict[str, Any] = {}
with api.build_kaggle_client() as client:
    quota = client.kernels.kernels_api_client.get_accelerator_quota_statistics(Quota())
    said["gpu hours"] = quota.gpu_quota.total_time_allowed.total_seconds() / 3600
with tempfile.TemporaryDirectory() as folder:
    meta = {
        "id": f"{user}/by-the-client",
        "title": "by the client",
        "code_file": "run.py",
        "language": "python",
        "kernel_type": "script",
        "is_private": True,
        "enable_gpu": True,
        "machine_shape": "NvidiaTeslaT4",
        "dataset_sources": [],
        "competition_sources": [],
        "kernel_sources": [],
        "model_sources": [],
    }
    Path(folder, "kernel-metadata.json").write_text(json.dumps(meta))
    Path(folder, "run.py").write_text("print('hello')\n")
    pushed = api.kernels_push(folder, timeout="3600")
    said["pushed"] = [pushed.ref, pushed.version_number, pushed.error or ""]
said["status"] = str(api.kernels_status(f"{user}/by-the-client").status)
said["listed"] = [one.ref for one in api.kernels_list(mine=True)]
print(json.dumps(said))
