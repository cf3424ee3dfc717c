"""What a run keeps of its trials: the candidates with their answers, and what they decided. A run that was
interrupted goes on with it, and ends as one that was not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from vitreous.checkpoints.runs import TRIALS
from vitreous.checkpoints.tensors import write_safetensors
from vitreous.evaluation.classical import MOST_FITTED
from vitreous.evaluation.scores import Interval
from vitreous.tasks.candidates import Candidate, CandidateTable, Part, Trial
from vitreous.tasks.task import Tree
from vitreous.whole_files import whole


@dataclass(frozen=True)
class KeptTrials:
    """The trials of a run, as they are kept.

    Attributes:
        settings: the user's own.
        options: of the command, by their names.
        seconds: that the command had taken.
        decision: the fields of a `vitreous.tasks.trials.TrainingMethod`; None before it.
        most: images that descriptors were computed of.
        content: a hash of the images that were compared on.
        candidates: the parts of each, and its row.
        file: with their answers.
    """

    settings: Tree
    options: Mapping[str, Any]
    seconds: float
    decision: Mapping[str, Any] | None
    most: int
    content: str
    candidates: tuple[tuple[tuple[Part, ...], Trial], ...]
    file: Path

    def fill(self, table: CandidateTable) -> bool:
        """Give a table the candidates. Return False, and give it none, where it is of other images."""
        if self.content != table.content:
            return False
        with safe_open(self.file, "pt") as answers:
            for number, (parts, trial) in enumerate(self.candidates):
                table.candidates.append(Candidate(parts, answers.get_tensor(str(number)), trial))
        return True


def keep_trials(folder: Path, table: CandidateTable, facts: Mapping[str, object]) -> None:
    """Write the trials into a run. facts: the first four of `KeptTrials`."""
    answers: dict[str, torch.Tensor] = {}
    candidates: list[dict[str, Any]] = []
    for number, each in enumerate(table.candidates):
        answers[str(number)] = each.outputs.float().contiguous()
        parts = [part.model_dump(mode="json") for part in each.parts]
        candidates.append({"parts": parts, "trial": asdict(each.trial)})
    tree = {
        **facts,
        "content": table.content,
        "most": table.most,
        "candidates": candidates,
    }
    with whole(folder / TRIALS) as partial:
        write_safetensors(answers, partial, metadata={"trials": json.dumps(tree, default=str)})


def kept_trials(folder: Path) -> KeptTrials | None:
    """Return the trials of a run; None where there were none, or the file is damaged or another version's."""
    file = folder / TRIALS
    try:
        with safe_open(file, "pt") as answers:
            tree = json.loads((answers.metadata() or {})["trials"])
        candidates: list[tuple[tuple[Part, ...], Trial]] = []
        for each in tree["candidates"]:
            parts = tuple(Part(**part) for part in each["parts"])
            candidates.append((parts, trial_of(each["trial"])))
        return KeptTrials(
            settings=tree["settings"],
            options=tree["options"],
            seconds=float(tree["seconds"]),
            decision=tree["decision"],
            most=int(tree.get("most", MOST_FITTED)),
            content=tree["content"],
            candidates=tuple(candidates),
            file=file,
        )
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return None


def trial_of(tree: Mapping[str, Any]) -> Trial:
    """Return a row of the table as it was."""
    lists = {name: tuple(tree.get(name, ())) for name in ("words", "init", "short")}
    return Trial(**{**tree, **lists, "interval": Interval(*tree["interval"])})
