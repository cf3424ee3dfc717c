"""Memory that is kept between steps."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT = """
import resource, sys
import torch
from vitreous.training.machine import keep_freed_memory

if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit("not glibc")
for round in range(30):
    if round == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(million * 1_000_000) for million in (9, 3, 20, 9)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_touched_anew(how: str) -> int:
    """In the last ten of thirty fillings of the same blocks, freed before the next."""
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=False)
    if "not glibc" in done.stderr:
        pytest.skip("this system's C library is not glibc")
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.clock
@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's page faults")
def test_what_was_freed_is_used_again_without_asking_the_system() -> None:
    assert pages_touched_anew("keep") < pages_touched_anew("as it is") / 4
