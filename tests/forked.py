"""Groups of processes for tests: torch and vitreous are imported once, and every group is forked from there.

`torchrun` imports them in each process, which takes longer than what a small test then does. It is run as it
is where what it does itself is tested: test_elastic.py, test_faults.py, and the slow tests of commands.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torch.distributed import TCPStore

# Reads {"script", "arguments", "processes", "environment"} line by line; answers with exit codes.
SERVER = """
import json, os, runpy, sys, traceback, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
import torch._dynamo, torch.distributed.checkpoint, torch.distributed.fsdp, torch.distributed.tensor
import vitreous.tasks.training_run, vitreous.data.sources, vitreous.tasks.pretraining.task
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    job, children = json.loads(line), []
    for rank in range(job["processes"]):
        if pid := os.fork():
            children.append(pid)
            continue
        code = 1
        try:
            os.environ.update(job["environment"], RANK=str(rank), LOCAL_RANK=str(rank))
            sys.argv = [job["script"], *job["arguments"]]
            runpy.run_path(job["script"], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    print(json.dumps(codes), file=answers, flush=True)
"""


@cache
def server() -> subprocess.Popen[str]:
    """The process that has imported everything, one for each worker of the tests."""
    started = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    atexit.register(started.kill)
    return started


def run_group(
    script: Path, *arguments: str | Path, processes: int = 2, environment: dict[str, str] | None = None
) -> None:
    """Run a script in a group of processes with torchrun's variables, as `torchrun --standalone` does."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    launched = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_RUN_ID": "tests",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    job = {
        "script": str(script),
        "arguments": list(map(str, arguments)),
        "processes": processes,
        "environment": {**launched, **(environment or {})},
    }
    running = server()
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(json.dumps(job) + "\n")
    running.stdin.flush()
    codes: Sequence[int] = json.loads(running.stdout.readline())
    assert codes == [0] * processes, f"{script.name}: the exit codes of its processes are {codes}"
