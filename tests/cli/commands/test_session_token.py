"""`gpu-shopper session token` prints the token that it made, once."""

from __future__ import annotations

import json

from bot.cli.access.settings import operator
from tests.cli.test_doors import Terminal, elsewhere, terminal
from tests.support.agents import agent, listening, pass_time

__all__ = ["elsewhere", "terminal"]


async def test_the_token_stands_alone_on_standard_output(terminal: Terminal) -> None:
    w = terminal.w
    terminal.far()
    async with listening(w):
        session = await w.running(operator(), candidates=("vast",))
        serving = await agent(w).serve()
        await pass_time(w, 61)
        code, out, err = await terminal.run("session", "token", session)
        assert code == 0, err
        (token,) = out.splitlines()
        assert token.startswith("gpua_")
        assert serving.certificate_sha256 in err
        assert "[redacted]" not in out + err
        made = json.loads((await terminal.run("session", "token", session, "--json"))[1])
        assert made["token"].startswith("gpua_")
        assert made["token"] != token
