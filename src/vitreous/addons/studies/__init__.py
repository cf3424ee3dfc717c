"""The experiments of papers at small scale, on images that are generated; and images drawn by formulas."""

from vitreous.extensions import Addon, Command

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
        "formulas": "vitreous.addons.studies.formulas:open_formulas",
        "world": "vitreous.addons.studies.world:open_world",
    },
    source_forms=("formulas:CLASSESxIMAGES@SIZE", "world:LABELS, such as world:shapes"),
    recipes=("recipes/formulas.toml",),
    caches={"studies": "runs of studies"},
    imports=("text",),
    words=True,
)
