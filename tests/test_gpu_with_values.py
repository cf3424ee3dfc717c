"""Commands that run to their ends where nothing reads a tensor of the device before it is copied."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOME = (
    "api/test_learning.py::test_a_run_has_model_metrics_report_and_evaluation",
    "inspection/test_model_report.py::test_the_command_on_images",
    "inspection/test_model_report.py::test_a_report_for_every_kind_of_model",
    "addons/segmentation/test_commands.py::test_the_report_shows_the_masks",
    "addons/text/test_translate.py::test_translate_texts",
)
ALL = ("api", "cli", "evaluation", "inspection", "addons/studies")
LEFT_OUT = (
    "test_one_sentence_and_exit_code_two",  # of names of devices, which the plugin answers
    "test_what_is_stored_is_calibrated",  # computes what it expects on the CPU
    "test_probe_gives_the_contracts_json",  # expects no sentence about the precision, as on a CPU
    "(test_examples_run and optimize)",  # tries bf16, and the device has no autocast
    "dry_run",  # asks for the addresses of storages, which the device has not
    "test_the_command_line_can_undo_each_switch_of_a_file",  # a dry run, too
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent / 'src'}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=HERE.parent,
    )


def passed(tests: tuple[str, ...], *options: str) -> None:
    plugins = ("-p", "gpu_with_values", "-p", "no:xdist", "-p", "no:cacheprovider")
    done = run("-m", "pytest", "-q", "--tb=short", *plugins, *options, *(f"tests/{name}" for name in tests))
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.slow
def test_the_device_refuses_what_a_gpu_does() -> None:
    code = """
import numpy, torch, gpu_with_values
here = torch.ones(2, 3, device=gpu_with_values.GPU)
weight = torch.ones(3, requires_grad=True).to(here.device).detach().requires_grad_()
(here @ weight).sum().backward()
assert weight.grad.device == here.device and weight.grad.cpu().tolist() == [2, 2, 2]
here[:, 1] = 0
assert (here * 2).cpu().numpy().tolist() == [[2, 0, 2]] * 2
for wrong in (lambda: here + torch.ones(2, 3), here.numpy, lambda: numpy.asarray(here)):
    try:
        wrong()
    except (TypeError, RuntimeError) as error:
        print(type(error).__name__)
"""
    done = run("-c", code)
    assert done.stdout.split() == ["RuntimeError", "TypeError", "TypeError"], done.stderr


@pytest.mark.slow
def test_commands_and_pages() -> None:
    passed(SOME)


@pytest.mark.slow
def test_every_command() -> None:
    passed(ALL, "-m", "not slow", "-k", f"not ({' or '.join(LEFT_OUT)})")
