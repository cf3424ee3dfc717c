"""`vitreous doctor RUN|DATA`."""

from __future__ import annotations

import vitreous as vt
from vitreous.cli.options import Json
from vitreous.cli.printing import print_findings, print_json


def doctor(subject: str, /, *, json: Json = False) -> int:
    """Why is it not learning? Findings about a run or a dataset, each with its fix.

    The exit code is 1 where a finding is an error.

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
        print_findings(diagnosis.findings)
    return 1 if diagnosis.errors else 0
