"""What tests of commands share: `tests/workplaces.py`, and a command that fails."""

from collections.abc import Callable, Iterator

import pytest

from vitreous.cli import app
from workplaces import Outcome as Outcome
from workplaces import command as command
from workplaces import workplace as workplace


@pytest.fixture
def failing() -> Iterator[Callable[[BaseException], str]]:
    """The name of a command that raises an error."""

    def command_for(error: BaseException) -> str:
        def fail() -> None:
            raise error

        app.command(fail, name="fail")
        return "fail"

    yield command_for
    del app["fail"]
