"""`vitreous doctor RUN|DATA`."""

from __future__ import annotations

import vitreous as vt
from vitreous.cli.options import Json
from vitreous.cli.printing import print_json


def doctor(subject: str, /, *, json: Json = False) -> int:
    """Why is it not learning? Findings about a run or a dataset, each with its fix.

    The exit code is 1 where something was found.

    Parameters
    ----------
    subject
        a run directory, or DATA as `vitreous train` takes it
    """
    diagnosis = vt.doctor(subject)
    if json:
        print_json(diagnosis.to_json())
    elif not diagnosis.findings:
        print(f"{subject}: nothing found that would keep a model from learning")
    else:
        for finding in diagnosis.findings:
            print(f"{finding.check}: {finding.problem}\n    fix: {finding.fix}")
    return 1 if diagnosis.findings else 0
