"""`vitreous`, and `python -m vitreous`, which `torchrun -m vitreous` needs."""

import sys


def main() -> None:
    """Run a command. Importing them takes a moment, in which Ctrl-C ends it quietly."""
    try:
        from vitreous.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
