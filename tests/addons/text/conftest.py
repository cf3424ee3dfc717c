"""What tests of text share with those of the core."""

from checkpoints.conftest import peer_families as peer_families
from golden.conftest import golden as golden
from golden.conftest import golden_root as golden_root
