"""`vitreous doctor RUN|DATA`."""

from __future__ import annotations

from pathlib import Path

from vitreous.cli.options import Json, print_json


def doctor(subject: str, /, *, json: Json = False) -> int:
    """Why is it not learning? Findings about a run or a data set, each with its fix.

    Parameters
    ----------
    subject
        a run directory, or DATA as `vitreous train` takes it
    """
    from vitreous.training.diagnosis.examine import examine_data, examine_run

    is_run = (Path(subject) / "config.toml").exists()
    findings = examine_run(Path(subject)) if is_run else examine_data(subject)
    if json:
        print_json({"subject": subject, "findings": [finding._asdict() for finding in findings]})
    elif not findings:
        print(f"{subject}: nothing found that would keep a model from learning")
    else:
        for finding in findings:
            print(f"{finding.check}: {finding.problem}\n    fix: {finding.fix}")
    return 0
