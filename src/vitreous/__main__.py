"""`python -m vitreous`, which `torchrun -m vitreous` needs."""

from vitreous.cli import main

main()
