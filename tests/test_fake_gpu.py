"""Everything that computes on a GPU does so on a fake one: no tensor of the CPU meets one of the device."""

import json
import subprocess
import sys
from pathlib import Path


def test_nothing_mixes_devices() -> None:
    program = Path(__file__).with_name("fake_gpu.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) > 50
    assert {name: error for name, error in errors.items() if error} == {}
