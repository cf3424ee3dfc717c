"""`vitreous`, and `python -m vitreous`, which `torchrun -m vitreous` needs."""

import os
import sys


def main() -> None:
    """Run a command. Importing them takes a moment, in which Ctrl-C ends it quietly."""
    # Threads of PyTorch sleep while they wait for each other. Spinning, two of them took 8.5 s for a step on
    # a machine with a load of 13; asleep 2.3 s, and one alone 2.5 s. OpenMP reads it with PyTorch's import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from vitreous.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
