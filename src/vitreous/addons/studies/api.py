"""`vitreous.study`: the claims of the papers, tested at small scale, and the ledger of their verdicts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from vitreous.addons.studies.options import StudyOptions
from vitreous.api.arguments import settings_tree
from vitreous.errors import InputError, Param, require_packages
from vitreous.languages import speaking, words
from vitreous.training.options import with_options

if TYPE_CHECKING:
    from vitreous.addons.studies.findings import Findings, Ledger

SEEDS = 5  # how often each variant is trained
QUICK = 0.1  # of the steps
QUICK_SEEDS = 2
TIMED = "complexity"  # on one thread
OWN_SIZE = 16  # pixels of a side, as in the generated images


def list_studies() -> dict[str, str]:
    """Return the question that each study asks, by the study's name.

    Example:
        >>> vt.list_studies()["heads"]
        'How many heads, at the same computation?'
    """
    return {name: study["title"] for name, study in words("studies").items()}


@with_options(StudyOptions)
def study(name: str, data: object = None, **options: Unpack[StudyOptions]) -> Findings | Ledger:
    """Test the claims of a paper at small scale, on generated images or sequences.

    Example:
        >>> ledger = vt.study("ledger")  # the verdicts that come with the package
        >>> sorted({row["verdict"] for row in ledger.table()})
        ['not-seen', 'seen', 'undecided']

    Args:
        name: one of `list_studies()`; "all" for all of them; or "ledger" for the claims and verdicts of the
            studies that have been run. Without `out` and a folder studies/, these are the studies that come
            with the package.
        data: images to train on instead of the generated ones, in any form that `train` takes, for the claims
            that can be tested on any images; each seed holds out a quarter of them.
        options: of `StudyOptions`.

    Raises:
        InputError: the study does not exist, or it does not have an option or a setting.
        KeyboardInterrupt: on Ctrl-C; the same call then continues with the next trial.
    """
    require_packages("matplotlib", "scipy", extra="train", what="a study")
    from vitreous.addons.studies.experiments import STUDIES, study_named
    from vitreous.addons.studies.findings import Ledger, run_study
    from vitreous.addons.studies.laboratory import Laboratory, OwnImages, check_own_images
    from vitreous.addons.studies.study import with_settings
    from vitreous.addons.studies.writing import results_folder
    from vitreous.errors import cache_folder
    from vitreous.training.machine import pick_device

    seeds, quick, out = options["seeds"], options["quick"], options["out"]
    tree, several = settings_tree(options["settings"], options["config"]), name in ("all", "ledger")
    given = {
        "DATA": several and data is not None,
        f"{Param('settings')} or {Param('config')}": several and bool(tree),
        Param("seeds"): name == "ledger" and seeds is not None,
        Param("quick"): name == "ledger" and quick,
        Param("device"): name in ("ledger", TIMED) and options["device"] != "auto",
    }
    what = {"ledger": "reads what was run", TIMED: "times one CPU thread"}
    if refused := [option for option, value in given.items() if value]:
        why = what.get(name, "is the ledger of the generated data")
        raise InputError(f"{refused[0]} has no effect on the study {name}, which {why}: leave it out")
    if seeds is not None and seeds < 1:
        raise InputError(
            f"{Param('seeds')} {seeds} trains nothing: use 1 or more (5 for a confidence interval)"
        )
    whole = Path("studies-quick" if quick else "studies")
    folder = Path(out) if out else whole / ("" if several else name)
    if name == "ledger":
        if out is None and not folder.is_dir():
            return Ledger.stored()
        return Ledger.read(folder).write(folder)

    def report(line: str) -> None:
        if options["progress"]:
            print(line, file=sys.stderr, flush=True)

    chosen = list(STUDIES.values()) if several else [study_named(name)]
    share, count = (QUICK, seeds or QUICK_SEEDS) if quick else (1.0, seeds or SEEDS)
    kept, own = tree, None
    if data is not None:
        check_own_images(chosen[0])
        size = tree.get("image_size", OWN_SIZE)
        sides = (size, size) if isinstance(size, int) else size
        if not isinstance(sides, list | tuple) or len(sides) != 2:
            raise InputError(f"image_size={size!r} is not a size: pass one number, or two")
        own = OwnImages.read(data, (sides[0], sides[1]))
        chosen = [own.study(chosen[0])]
        tree = {name: value for name, value in tree.items() if name != "image_size"}
    if tree:
        chosen = [with_settings(chosen[0], tree)]
    cache = cache_folder() / "studies"
    laboratory = Laboratory(cache=cache, device=pick_device(options["device"]), share=share, own=own)
    for each in chosen:
        place = folder / each.name if several else folder
        with results_folder(place), speaking(options["language"]):
            findings = run_study(each, laboratory, count, progress=report)
            found = replace(findings, settings=kept).write(place)
    return Ledger.read(folder, share).write(folder) if several else found
