"""The start-up over check-ins: who receives its plan, what people see of it, and one message of a failure."""

from __future__ import annotations

from typing import Any

from ledger.kernel.states import NotificationKind
from tests.api.door import Door
from tests.support.agents import agent, listening, pass_time

PATH = "http://bot/agent/v1/checkin"


async def test_an_agent_that_asks_receives_the_plan_and_a_failed_step_is_one_message(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",), repo="https://github.com/org/project@main", run="python train.py")
        node = agent(w)
        await pass_time(w, 61)
        head = {"Authorization": f"Bearer {node.token}"}

        async def send(n: int, **body: Any) -> dict[str, Any]:
            w.clock.advance(10)
            answer = await door.http.post(PATH, json={"v": 2, "seq": node.seq + n, **body}, headers=head)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        assert (await send(1)).get("startup") is None
        plan = (await send(2, wants_startup=True))["startup"]
        assert [one["name"] for one in plan["steps"]] == ["environment", "packages", "repo", "run"]
        before = len((await w.books()).notifications)
        failed = {"steps": [{"name": "repo", "state": "failed", "seconds": 3, "exit_code": 128}]}
        for n in (3, 4):
            await send(n, machine=failed)
        new = (await w.books()).notifications[before:]
        texts = [str(one.body) for one in new if one.kind != NotificationKind.OPERATOR_PAGE]
        assert len([one for one in texts if "failed at repo with exit code 128" in one]) == 1
        assert (await w.books()).instances[0].state == "live"


async def test_the_machine_receives_the_whole_signature_of_an_address(door: Door) -> None:
    w, signed = door.w, "https://bucket.example.com/x.pt?X-Amz-Expires=60&X-Amz-Signature=0123456789abcdef"
    async with listening(w):
        await w.running(candidates=("vast",), run=f"wget '{signed}'", mounts=(f"COPY /data/x {signed}",))
        node = agent(w)
        await pass_time(w, 61)
        head, body = {"Authorization": f"Bearer {node.token}"}, {"v": 2, "seq": node.seq + 1, "wants_startup": True}
        w.clock.advance(10)
        answer = await door.http.post(PATH, json=body, headers=head)
        said = str(answer.json()["startup"])
        assert f"wget '{signed}'" in said.replace('"', "'").replace("\\'", "'")
        assert said.count("X-Amz-Signature=0123456789abcdef") >= 2


async def test_a_served_model_is_one_message_and_a_failed_server_is_one_with_the_end_of_its_log(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",), install="serve", workload="serve", model="org/tiny")
        node = agent(w)
        await pass_time(w, 61)
        head = {"Authorization": f"Bearer {node.token}"}
        before = len((await w.books()).notifications)

        async def send(n: int, **machine: Any) -> dict[str, Any]:
            w.clock.advance(10)
            body = {"v": 2, "seq": node.seq + n, "wants_startup": True, "machine": machine}
            answer = await door.http.post(PATH, json=body, headers=head)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        plan = (await send(1))["startup"]
        assert plan["steps"][-1]["serve"]["model"] == "org/tiny"
        done = {"name": "serve", "state": "done", "seconds": 95, "exit_code": 0}
        for n in (2, 3):
            await send(n, steps=[done])
        log = "loading\nexport HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\n\x1b[31mCUDA out of memory\n"
        for n in (4, 5):
            await send(n, steps=[{**done, "state": "failed", "exit_code": 1}], log_tail=log)
        new = (await w.books()).notifications[before:]
        texts = [str(one.body["text"]) for one in new if one.kind == NotificationKind.REPLY]
        ready, failed = (one for one in texts if "serve" in one)
        assert "is ready to serve: its model server answered a chat completion." in ready
        assert failed.endswith("The log ends with: loading | export HF_TOKEN=… | CUDA out of memory")
        assert (await w.books()).instances[0].state == "live"


async def test_a_job_without_a_start_up_has_an_empty_plan(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        node = agent(w)
        await pass_time(w, 61)
        body = {"v": 2, "seq": node.seq + 1, "wants_startup": True}
        answer = await door.http.post(PATH, json=body, headers={"Authorization": f"Bearer {node.token}"})
        assert answer.json()["startup"] == {}
