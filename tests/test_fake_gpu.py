"""Everything that computes on a GPU does so on a fake one: no tensor of the CPU meets one of the device."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["bf16"]], ids=["devices", "precisions"])
def test_nothing_mixes_devices_or_precisions(words: list[str]) -> None:
    program = [sys.executable, str(Path(__file__).with_name("fake_gpu.py")), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) > (25 if words else 50)
    assert {name: error for name, error in errors.items() if error} == {}
