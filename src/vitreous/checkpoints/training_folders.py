"""Where in the output directory of a training program its newest weights are: of transformers' Trainer,
accelerate, Lightning, DeepSpeed, torchtitan and others that number their checkpoints."""

from __future__ import annotations

import re
from pathlib import Path

from vitreous.checkpoints.files import ADAPTER_WEIGHTS, INDICES, WEIGHTS

# What a folder is that has weights, or a list of them.
OWN = (*WEIGHTS, *INDICES, *ADAPTER_WEIGHTS, ".metadata", "modules.json")
# Folders inside that have the checkpoints, or the weights beside the optimizer's state.
INSIDE = ("lightning_logs", "checkpoints", "checkpoint", "pytorch_model_fsdp_0", "weights")
# A checkpoint, a step or a run of several, each a folder: checkpoint-500, step_1000, version_3.
NUMBERED = re.compile(r"(?:checkpoint|step|global_step|epoch|version|iter|iteration)[-_]?(\d+)")
# Lightning's files (or folders, of shards): epoch=9-step=100.ckpt, and the last of them.
LIGHTNING = re.compile(r"(?:.*-)?(?:epoch=\d+-)?step=(\d+).*\.ckpt")
LAST = "last.ckpt"
DEEPEST = 5


def newest_checkpoint(path: Path) -> Path:
    """The newest checkpoint in a folder that has no weights itself; any other path as it is."""
    for _ in range(DEEPEST):
        if not path.is_dir() or any((path / name).exists() for name in OWN):
            return path
        if (path / LAST).exists():
            return path / LAST
        found: list[tuple[int, Path]] = []
        for each in path.iterdir():
            match = LIGHTNING.fullmatch(each.name) or (each.is_dir() and NUMBERED.fullmatch(each.name))
            if match:
                found.append((int(match[1]), each))
        within = [max(found)[1]] if found else [path / name for name in INSIDE if (path / name).is_dir()]
        if not within:
            return path
        path = within[0]
    return path
