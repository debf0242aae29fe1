"""Vast.ai's own SDK and command, walked against whatever VAST_URL names. Prints one JSON object."""

import json
import os
import sys
from typing import Any

from vastai import VastAI
from vastai.cli.main import main

KEY = os.environ["VAST_API_KEY"]


def command(*words: str) -> Any:
    """What the `vastai` command prints for programs. It runs once per process, and starting one takes seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 1)
        sys.argv = ["vastai", *words, "--raw", "--api-key", KEY]
        main()
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as printed:
        text = printed.read().strip()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, text
    return json.loads(text) if text.startswith(("{", "[")) else text


sdk = VastAI(api_key=KEY, raw=True, quiet=True)
said: dict[str, Any] = {"credit": sdk.show_user()["credit"]}
offers = sdk.search_offers(query="gpu_name=RTX_4090 num_gpus=1", order="dph_total", limit="5")
said["offers"] = [[one["gpu_name"], one["num_gpus"]] for one in offers]
made = sdk.create_instance(id=offers[0]["id"], image="pytorch/pytorch", disk=20, label="by-sdk", ssh=True, direct=True)
ref = made["new_contract"]
said["shown"] = sdk.show_instance(id=ref)["actual_status"]
said["listed"] = [one["label"] for one in sdk.show_instances()]
sdk.label_instance(id=ref, label="renamed")
said["renamed"] = sdk.show_instance(id=ref)["label"]
sdk.stop_instance(id=ref)
said["stopped"] = sdk.show_instance(id=ref)["actual_status"]
sdk.start_instance(id=ref)
said["started"] = sdk.show_instance(id=ref)["actual_status"]
sdk.destroy_instance(id=ref)
said["left"] = [one["id"] for one in sdk.show_instances()]

found = command("search", "offers", "gpu_name=RTX_4090 num_gpus=1", "-o", "dph_total", "--limit", "3")
said["command offers"] = len(found)
bought = command("create", "instance", str(found[0]["id"]), "--image", "a/b", "--disk", "20", "--label", "by-command")
other = str(bought["new_contract"])
said["command listed"] = [one["label"] for one in command("show", "instances")]
command("label", "instance", other, "again")
said["command label"] = command("show", "instance", other)["label"]
command("stop", "instance", other)
command("start", "instance", other)
command("destroy", "instance", other, "-y")
said["command left"] = command("show", "instances")
print(json.dumps(said))
