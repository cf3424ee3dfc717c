"""`vitreous`, and `python -m vitreous`, which `torchrun -m vitreous` needs."""

import atexit
import gc
import os
import sys

# Objects that are new before garbage is looked for: of those that imports make, none is. With Python's 700
# the collector walked them again and again, for a tenth of the time that `vitreous predict` takes.
NEW_OBJECTS = 200_000


def main() -> None:
    """Run a command. Importing them takes a moment, in which Ctrl-C ends it quietly."""
    # Threads of PyTorch sleep while they wait for each other. Spinning, two of them took 8.5 s for a step on
    # a machine with a load of 13; asleep 2.3 s, and one alone 2.5 s. OpenMP reads it with PyTorch's import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    # As it ends, the interpreter would walk all objects again, for a quarter of the time of `predict`.
    atexit.register(gc.freeze)
    try:
        from vitreous.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
