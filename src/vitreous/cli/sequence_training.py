"""What `vitreous translate train` and `vitreous train --task text` do alike: train, judge, write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.cli.training import say

if TYPE_CHECKING:
    import torch

    from vitreous.training.distributed import World
    from vitreous.training.sequence.plan import Prepared
    from vitreous.training.sequence.run import SequenceRun


def carry_out(
    run: SequenceRun,
    prepared: Prepared,
    device: torch.device,
    world: World,
    *,
    judge: Callable[[Any], dict[str, Any]],
    report: Callable[[Any], Path],
) -> dict[str, Any] | None:
    """Train the run's model, judge it on what was held out, write report and card. What came out; None in all
    processes but the first.

    Args:
        judge: what a model makes of the held-out part, as JSON.
        report: writes the page of what a model looks at.
    """
    from vitreous.checkpoints.whole_files import write_text
    from vitreous.training.callbacks import Display
    from vitreous.training.initial_model import count_parameters
    from vitreous.training.sequence.card import card
    from vitreous.training.sequence.plan import left_out
    from vitreous.training.sequence.run import train_sequence_model

    for line in left_out(prepared):
        say(line, world)
    display = Display() if world.first else None
    trained = train_sequence_model(run, prepared, device=device, display=display, world=world)
    if not world.first:
        return None
    result = {
        "run": str(run.path),
        **judge(trained.model),
        "report": str(report(trained.model)),
        "seconds": trained.seconds,
        "train_count": prepared.examples,
        "skipped": prepared.skipped,
        "parameters": count_parameters(trained.model),
    }
    write_text(run.path / "README.md", card(run.config, result))
    return result
