"""Start the agent: without an argument its watchdog, else the process that the argument names.

Each process loads only what it needs: the watchdog is small, so that it is the last to be ended for memory.
"""

from __future__ import annotations

import sys

from bot.agent import libraries

if sys.argv[1:] == ["report"]:
    from bot.agent.reporter import main
elif sys.argv[1:] == ["serve-api"]:
    from bot.agent import own_folder
    from bot.agent.job_process import own_program

    command = [sys.executable, *own_program(), libraries.COMPILES]
    libraries.have_compiled(sys.argv[0], own_folder.of_this_machine(), command)
    from bot.agent.api.process import main
elif sys.argv[1:] == [libraries.COMPILES]:
    libraries.record()
    from bot.agent.api.process import keep_compiled as main
elif sys.argv[1:] == ["start-up"]:
    from bot.agent.startup.runner import main
elif sys.argv[1:] == ["read-gpus"]:
    from bot.agent.every_gpu import main
elif sys.argv[1:] == ["run-queue"]:
    from bot.agent.queue.runner import main
elif sys.argv[1:] == ["run-command"]:
    from bot.agent.job_process import main
else:
    from bot.agent import early_reporter

    if not sys.argv[1:]:
        early_reporter.start()
    from bot.agent.watchdog import main

if sys.argv[1:] != ["serve-api"]:  # It reads the GPUs later, and forgets then.
    libraries.forget()

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
