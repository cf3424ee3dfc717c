"""What `vitreous translate train` and `vitreous train --task text` do alike: train, judge, write, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.cli.options import print_json
from vitreous.cli.training import STOPPED, how_to_go_on
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.training.sequence.plan import Prepared
    from vitreous.training.sequence.run import SequenceRun


def check_alone() -> None:
    """Raises InputError where torchrun has begun several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("what writes text is trained by one process: begin it without torchrun")


def carry_out(
    run: SequenceRun,
    prepared: Prepared,
    *,
    judge: Callable[[Any], dict[str, Any]],
    report: Callable[[Any], Path],
    show: Callable[[dict[str, Any]], None],
    device: str,
    json: bool,
) -> int:
    """Train the run's model, judge it on what was held out, write report and card, print the result.

    Args:
        judge: what a model makes of the held-out part, as JSON.
        report: writes the page of what a model looks at.
        show: prints a result for people.
    """
    from vitreous.training.device import pick_device
    from vitreous.training.display import Display
    from vitreous.training.sequence.card import card
    from vitreous.training.sequence.plan import left_out
    from vitreous.training.sequence.run import train_sequence_model
    from vitreous.training.signals import Interrupted
    from vitreous.training.state import write_text

    for line in left_out(prepared):
        print(line, file=sys.stderr)
    try:
        model, seconds = train_sequence_model(
            run, prepared.loader, prepared.tokeniser, device=pick_device(device), display=Display()
        )
    except Interrupted as stopped:
        print(how_to_go_on(stopped.step, run.config.command, run.path), file=sys.stderr)
        return STOPPED
    result = {
        "run": str(run.path),
        **judge(model),
        "report": str(report(model)),
        "seconds": seconds,
        "train_count": prepared.examples,
        "skipped": prepared.skipped,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    write_text(run.path / "README.md", card(run.config, result))
    if json:
        print_json(result)
    else:
        show(result)
    return 0
