"""What tests of objectives share: `tests/pretraining/conftest.py`."""

from pretraining.conftest import images as images
from pretraining.conftest import losses as losses
from pretraining.conftest import tiny as tiny
