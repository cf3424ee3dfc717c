"""What every test shares: a quiet, repeatable PyTorch."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
