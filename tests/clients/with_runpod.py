"""RunPod's own SDK, walked against whatever RUNPOD_API_BASE_URL names. Prints one JSON object."""

import json
import os

import runpod

runpod.api_key = os.environ["RUNPOD_API_KEY"]
kinds = [one["id"] for one in runpod.get_gpus()]
said = {"kinds": len(kinds), "user": sorted(runpod.get_user())}
gpu = "NVIDIA GeForce RTX 4090"
said["gpu"] = runpod.get_gpu(gpu)["memoryInGb"]
made = runpod.create_pod("by-sdk", "runpod/pytorch", gpu, container_disk_in_gb=20, volume_in_gb=50, ports="22/tcp")
said["shown"] = [runpod.get_pod(made["id"])[key] for key in ("name", "desiredStatus", "gpuCount")]
said["listed"] = [one["name"] for one in runpod.get_pods()]
said["stopped"] = runpod.stop_pod(made["id"])["desiredStatus"]
said["started"] = runpod.resume_pod(made["id"], gpu_count=1)["desiredStatus"]
runpod.terminate_pod(made["id"])
said["left"] = runpod.get_pods()
try:
    runpod.create_pod("nowhere", "a/b", "NVIDIA No Such GPU")
except ValueError as error:
    said["refused"] = str(error)
print(json.dumps(said))
