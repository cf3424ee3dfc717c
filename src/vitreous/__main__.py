"""`vitreous`, and `python -m vitreous`, which `torchrun -m vitreous` needs."""

import gc
import os
import sys
from threading import Timer

BEGINNING = 10.0  # seconds, in which no garbage is looked for


def look_for_garbage() -> None:
    """Let the collector begin, with what there is by now set aside for good."""
    gc.freeze()
    gc.enable()


def main() -> None:
    """Run a command. Importing them takes a moment, in which Ctrl-C ends it quietly."""
    # Threads of PyTorch sleep while they wait for each other. Spinning, two of them took 8.5 s for a step on
    # a machine with a load of 13; asleep 2.3 s, and one alone 2.5 s. OpenMP reads it with PyTorch's import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # None of what imports make is garbage. The collector would walk it again and again, for a tenth of the
    # time that `vitreous predict` takes for one image.
    gc.disable()
    beginning = Timer(BEGINNING, look_for_garbage)
    beginning.daemon = True
    beginning.start()
    try:
        from vitreous.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
