"""The scripts for clusters: what a scheduler does to them, played by stand-ins, and what linters say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
SLURM = EXAMPLES / "cluster" / "slurm.sbatch"
MANIFESTS = (EXAMPLES / "cluster" / "jobset.yaml", EXAMPLES / "deploy" / "kubernetes.yaml")

STAND_INS = {
    "bin/scontrol": 'if [ "$1" = show ]; then printf "n1\\nn2\\n"; else echo "$@" >> "$SHARED/log"; fi',
    # A step that hears SIGTERM ends; otherwise it runs its command.
    "bin/srun": 'trap \'echo "the step stops" >> "$SHARED/log"; exit 0\' TERM; shift; "$@" & wait $!',
    "venv/bin/torchrun": 'echo "$@" >> "$SHARED/log"; [ -z "${LONG:-}" ] || sleep 1000',
}


def jobs(path: Path) -> list[dict[str, Any]]:
    """The documents of a manifest; those of a JobSet as the jobs that it makes of them."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(path.read_text()))
    return [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": each["name"]}, **each["template"]}
        for document in documents
        if document["kind"] == "JobSet"
        for each in document["spec"]["replicatedJobs"]
    ] + [document for document in documents if document["kind"] != "JobSet"]


def submitted(folder: Path, **environment: str) -> subprocess.Popen[str]:
    """The batch script, started as on the first node of its job."""
    for name, text in STAND_INS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "17"}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", str(SLURM)],
        env={**os.environ, **slurm, "SHARED": str(folder), "PATH": path, **environment},
        text=True,
        start_new_session=True,
    )


def test_a_slurm_job_begins_and_a_requeued_one_resumes(tmp_path: Path) -> None:
    assert submitted(tmp_path).wait() == 0
    (begun,) = (tmp_path / "log").read_text().splitlines()
    assert "--nnodes 2 --nproc-per-node 8" in begun
    assert "--rdzv-endpoint n1:29500 -m vitreous train" in begun
    run = tmp_path / "runs" / "vit-b16-in21k"
    assert begun.endswith(f"--recipe paper-imagenet21k --out {run}")
    run.mkdir(parents=True)
    (run / "config.toml").touch()  # it was stopped before its first checkpoint
    assert submitted(tmp_path).wait() == 0
    assert (tmp_path / "log").read_text().splitlines()[1].endswith(f"-m vitreous train --resume {run}")


def test_a_slurm_job_whose_time_is_over_goes_back_to_the_queue(tmp_path: Path) -> None:
    job = submitted(tmp_path, LONG="1")
    try:
        while not (tmp_path / "log").exists():
            assert job.poll() is None
        job.send_signal(signal.SIGTERM)
        assert job.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["the step stops", "requeue 17"]


@pytest.mark.slow
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("no shellcheck: make test-slow installs it")
    scripts = [SLURM]
    for job in jobs(MANIFESTS[0]):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        scripts.append(tmp_path / "container.sh")
        scripts[-1].write_text(f"#!/bin/bash\n{container['args'][0]}")
    done = subprocess.run([program, *map(str, scripts)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_follow_the_schemas_of_kubernetes(path: Path) -> None:
    """Strictly: an unknown field is an error. A JobSet is checked as the Job that it makes."""
    kubernetes = pytest.importorskip("kubernetes_validate", reason="make test-slow installs it")
    assert jobs(path)
    for document in jobs(path):
        kubernetes.validate(document, kubernetes.latest_version(), strict=True)
