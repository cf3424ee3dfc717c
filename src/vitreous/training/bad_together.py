"""Images that cannot be read, of all processes that train together: each finds those of its own share."""

from __future__ import annotations

from pathlib import Path

from vitreous.data.dataset import BadFiles
from vitreous.training.distributed import World


class BadTogether:
    """What one process has found, and what the others have told it.

    Args:
        bad: where this process's loader notes what it cannot read; what the others tell is added there, so
            that the loader counts it, too.
        images: how many there are to learn from, over all processes.
    """

    def __init__(self, bad: BadFiles, images: int, world: World) -> None:
        self.bad, self.images, self.world = bad, images, world
        self.told = 0

    @property
    def untold(self) -> bool:
        """Whether there are some that the other processes do not know of."""
        return len(self.bad) > self.told

    def share(self) -> None:
        """Every process gets to know all; all of them must call this together.

        Raises:
            InputError: they are more than 1 %, with the list; in every process.
        """
        all_found = self.world.gathered(self.bad.reasons.copy())  # threads may add to it meanwhile
        together = {name: reason for found in all_found for name, reason in found.items()}
        self.bad.reasons.update(together)
        self.told = len(together)
        self.bad.check(self.images)

    def write(self, run: Path) -> None:
        """The list in the run. A process that stopped alone, before it told the others, has its own."""
        if self.world.first:
            self.bad.write(run / "bad_files.txt")
        elif self.untold:
            self.bad.write(run / f"bad_files-{self.world.rank}.txt")
