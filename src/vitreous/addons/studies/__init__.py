"""The experiments of papers at small scale, on images that are generated; and images drawn by formulas."""

from vitreous.extensions import Addon, Command, DataKind

ADDON = Addon(
    commands={
        "study": Command(
            "Reproduce an experiment of the paper at small scale.",
            "vitreous.addons.studies.command",
            ("vitreous study positions --quick", "vitreous study complexity --quick --json"),
        )
    },
    names={"list_studies": "vitreous.addons.studies.api", "study": "vitreous.addons.studies.api"},
    sources={
        "formulas": DataKind(
            "vitreous.addons.studies.formulas:open_formulas", "formulas:CLASSESxIMAGES@SIZE", validated=False
        ),
        "world": DataKind("vitreous.addons.studies.world:open_world", "world:LABELS, such as world:shapes"),
    },
    recipes={"train": ("recipes/formulas.toml",)},
    caches={"studies": "runs of studies"},
    imports=("text",),
    words=True,
)
