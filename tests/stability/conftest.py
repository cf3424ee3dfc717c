"""What tests of commands share: `tests/workplaces.py`."""

from workplaces import command as command
from workplaces import workplace as workplace
