"""The command line: `vitreous COMMAND`. A module is imported when one of its commands is called.

Results go to stdout, progress and logs to stderr. Exit codes: 0 done, 1 findings (doctor, data check), files
that failed or an unexpected error, 2 the user's input is wrong (one sentence), 130 interrupted with the state
saved, 141 stdout was closed.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter

from vitreous import __version__
from vitreous.cli.options import HelpFormatter, sentence_about, unknown_command
from vitreous.cli.streams import (
    abandon,
    about_defect,
    check_current_folder,
    prepare_columns,
    prepare_streams,
    sentence_for,
)
from vitreous.errors import InputError, Param, own_warnings, printable, utf8_name
from vitreous.extensions import Command, addons
from vitreous.languages import speaking
from vitreous.languages.terminal import CallError, said, summary_of, word
from vitreous.training.clock import Clock

PIPE_CLOSED = 141  # 128 + SIGPIPE, as a shell reports it of other programs


ROWS = tomllib.loads((pkgutil.get_data("vitreous.cli", "commands.toml") or b"").decode())
CORE = {name: Command(**fields) for name, fields in ROWS.items()}
ADDED = {name: command for addon in addons().values() for name, command in addon.commands.items()}
COMMANDS = CORE | ADDED


def epilogue(examples: Iterable[str]) -> str:
    """Return the end of a command's help."""
    return f"{word('Examples')}:\n  " + "\n  ".join(examples)


app = App(
    name="vitreous",
    version=f"vitreous {__version__}",
    help=word(
        "The Vision Transformer: train on your images, load any checkpoint, see what a model attends to."
    ),
    help_epilogue=word("Every command takes --quiet (results and errors only) and --verbose (log messages)."),
    help_format="plaintext",
    help_formatter=HelpFormatter(""),
    suppress_keyboard_interrupt=False,  # `run` says how to go on
    default_parameter=Parameter(negative=()),
)
data = App(
    name="data",
    help=word("Check a dataset, or pack it into shards for fast epochs."),
    help_epilogue=epilogue(COMMANDS[name].examples[0] for name in ("data check", "data pack")),
    help_format="plaintext",
    help_formatter=HelpFormatter("data"),
    default_parameter=Parameter(negative=()),
)
app.command(data)
groups = {"data": data, "": app}
of_addons = Group("Add-ons", sort_key=1)  # below the commands of the core
for name, command in COMMANDS.items():
    group, _, last = name.rpartition(" ")
    function = f"{command.module}:{last.replace('-', '_')}"
    groups[group].command(
        function,
        name=last,
        group=of_addons if name in ADDED else None,
        help=summary_of(name, command.summary),
        help_epilogue=epilogue(command.examples),
        help_formatter=HelpFormatter(name),
    )
app.register_install_completion_command(help="Install completion for your shell.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    try:
        # Figures are written, never shown.
        os.environ["MPLBACKEND"] = "agg"
        prepare_streams()
        prepare_columns()
        check_current_folder()
        if arguments is None:
            Clock.command = Clock.of_process()
        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout, such as `head`, has enough.
        abandon(sys.stdout)
        code = PIPE_CLOSED
    except InputError as error:
        # There is no stdout, or no current folder.
        print(f"vitreous: {error}", file=sys.stderr)
        code = 2
    except OSError as error:  # stdout is full
        abandon(sys.stdout)
        reason = said(
            "the results cannot be written to stdout ({reason}): free up space", reason=error.strerror
        )
        print(f"vitreous: {reason}", file=sys.stderr)
        code = 2
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. What the user can fix becomes one sentence on stderr."""
    words, quiet, verbose = without_verbosity(arguments)
    before, Param.on_command_line = Param.on_command_line, True
    try:
        if quiet and verbose:
            raise CallError("--quiet and --verbose contradict each other: pass one of them")
        if words and not words[0].startswith("-") and words[0] not in app:
            raise InputError(unknown_command(words[0], [name for name in app if name[0] != "-"]))
        check_none_is_empty(words)
        with own_warnings(), printed(quiet, verbose), speaking(None):
            result = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except BrokenPipeError:  # `main` ends quietly
        raise
    except SystemExit as stopped:
        # Rich ends in this way where nothing reads the help.
        if isinstance(stopped.__context__, BrokenPipeError):
            raise stopped.__context__ from None
        raise
    except (Exception, KeyboardInterrupt) as error:
        return print_reason(error, verbose=verbose)
    finally:
        Param.on_command_line = before
    return result if isinstance(result, int) else 0


def print_reason(error: Exception | KeyboardInterrupt, *, verbose: bool) -> int:
    """Print why a command has ended early, and return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        # Of the processes that torchrun has started, the first one has notes.
        alone = os.environ.get("RANK", "0") == "0"
        for note in getattr(error, "__notes__", [said("interrupted")] if alone else ()):
            print(printable(f"vitreous: {note}"), file=sys.stderr)
        return 130
    if isinstance(error, InputError | CycloptsError):
        sentence = sentence_about(error) if isinstance(error, CycloptsError) else str(error)
        known: str | None = " ".join(sentence.split())
    else:
        # Where that fails, `main` says so.
        sys.stdout.flush()
        known = sentence_for(error)
    if verbose:
        traceback.print_exception(error)
    sentence = about_defect(error) if known is None else known
    print(f"vitreous: {printable(utf8_name(sentence))}", file=sys.stderr)
    return 1 if known is None else 2


def check_none_is_empty(words: Sequence[str]) -> None:
    """Raise InputError for an empty argument: as a path it would be the current folder."""
    texts = bool(words) and words[0] in COMMANDS and COMMANDS[words[0]].texts
    before = ""
    for given in words:
        unset = given.startswith("--") and given.endswith("=")
        if unset or (not given and (before.startswith("--") or not texts)):
            named = given[:-1] if unset else before if before.startswith("--") else said("an argument")
            raise CallError("{name} is empty: is a variable not set?", name=named)
        before = given


def without_verbosity(arguments: Sequence[str]) -> tuple[list[str], bool, bool]:
    """Return the arguments without --quiet and --verbose, and whether each of the two is given."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = arguments[:end], arguments[end:]
    words = [word for word in options if word not in ("--quiet", "-q", "--verbose", "-v")]
    quiet = "--quiet" in options or "-q" in options
    return [*words, *rest], quiet, "--verbose" in options or "-v" in options


class PrintableStream:
    """A text stream whose control characters are written out: a file's name or a class cannot command the
    terminal."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return int(self.stream.write(printable(text)))

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextmanager
def printed(quiet: bool, verbose: bool) -> Iterator[None]:
    """Print nothing on stderr but an error if quiet; every log message if verbose. No control characters
    reach stdout."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(PrintableStream(sys.stdout)))  # type: ignore[type-var]
        # matplotlib says where its cache cannot be written, which does not matter to the user.
        if not verbose:
            logging.getLogger("matplotlib").setLevel(logging.ERROR)
        if quiet:
            stack.enter_context(redirect_stderr(stack.enter_context(open(os.devnull, "w"))))
        elif verbose:
            logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", force=True)
            logging.getLogger("vitreous").setLevel(logging.DEBUG)
        yield
