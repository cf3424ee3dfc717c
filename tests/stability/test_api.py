"""What 1.0 declares stable in Python: names, parameters, and what calls return, compared with a kept list.

Adding to it is a decision that a diff of python.txt or returns.txt shows; removing or renaming waits for the
next major version.
"""

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import vitreous as vt
from vitreous.results import Result

KEPT = Path(__file__).with_name("python.txt")
RETURNS = Path(__file__).with_name("returns.txt")
# Of the classes that calls return or take, the members that are declared; the others may change.
MODEL = (
    "config",
    "features",
    "forward",
    "intermediates",
    "labels",
    "origin",
    "preprocessing",
    "task",
    "tokens",
)
MEMBERS = {
    "BiT": MODEL,
    "ViT": MODEL,
    "MAE": ("load", "reconstruct", "save"),
    "Predictor": ("__call__", "labels"),
    "Preprocessing": (
        "__call__",
        "crop_fraction",
        "interpolation",
        "mean",
        "normalize",
        "resize",
        "size",
        "std",
    ),
    "Run": ("evaluation", "metrics", "model", "path", "report", "resume", "table", "task", "to_json"),
}
# The classes of what calls return, and of what that holds, by their modules.
RESULTS = {
    "addons.learn_page.page": ("LearnPage",),
    "addons.optimize.measuring": ("Optimization",),
    "addons.segmentation.evaluation": ("SegmentationEvaluation",),
    "addons.studies.findings": ("Findings", "Ledger"),
    "addons.text.api": ("TranslatedText", "Translations"),
    "addons.text.evaluation": ("TranslationEvaluation",),
    "api.deployment": ("Calibrated",),
    "api.features": ("Embeddings",),
    "api.inspection": ("Attributions",),
    "api.models": ("Converted", "Drawing"),
    "api.run": ("Run",),
    "checkpoints.pretrained_encoders": ("ShippedEncoder",),
    "data.findings": ("DataReport", "Diagnosis", "Examination", "Finding"),
    "data.packing": ("Packed",),
    "deployment.answers": ("Choice", "Damaged", "Prediction", "Predictions", "Unreadable"),
    "deployment.export": ("ExportedFile",),
    "evaluation.classification": ("ClassificationEvaluation", "MultiLabelEvaluation"),
    "evaluation.comparison": ("Comparison",),
    "evaluation.probes": ("Probe",),
    "evaluation.result": ("Evaluation", "LabelEvaluation", "Metric", "Mistake"),
    "inspection.capture": ("CapturedAttention",),
    "inspection.page": ("Inspection",),
    "models.description": ("Description",),
    "results": ("Result",),
    "tasks.forecast": ("Forecast",),
    "tasks.pretraining.task": ("PretrainingEvaluation",),
    "tasks.regression": ("RegressionEvaluation",),
}


def parameters(function: Any) -> Iterator[str]:
    """Each parameter as a caller sees it: `*` where it has to be named, `=` where it may be left out."""
    for each in inspect.signature(function).parameters.values():
        if each.name in ("self", "cls") or each.name.startswith("_"):
            continue
        named = "*" if each.kind is each.KEYWORD_ONLY else ""
        optional = "" if each.default is each.empty else "="
        stars = {each.VAR_POSITIONAL: "*args ", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        yield f"{named}{stars}{each.name}{optional}"


def listing() -> Iterator[str]:
    for name in sorted(vt.__all__):
        public = getattr(vt, name)
        if isinstance(public, type):
            yield f"class {name}"
            for member in MEMBERS.get(name, ()):
                found = getattr(public, member, None)  # None: an attribute of each object
                is_method = inspect.isfunction(found) or inspect.ismethod(found)
                called = f"({', '.join(parameters(found))})" if is_method else ""
                yield f"    {name}.{member}{called}"
        elif callable(public):
            yield f"{name}"
            yield from (f"    {name}: {parameter}" for parameter in parameters(public))
        else:
            yield f"{name}: {type(public).__name__}"


def returned() -> dict[str, type]:
    """The classes of results by their names."""
    return {
        name: getattr(import_module(f"vitreous.{module}"), name)
        for module, names in RESULTS.items()
        for name in names
    }


def returns() -> Iterator[str]:
    """What each call returns, then what each class of a result adds to the classes that it derives from."""
    for name in sorted(vt.__all__):
        public = getattr(vt, name)
        if callable(public) and not isinstance(public, type):
            annotation = public.__annotations__["return"]
            text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            yield f"{name} -> {text}"
    for name, result in sorted(returned().items()):
        bases = [base for base in result.__bases__ if base in returned().values()]
        yield f"class {name}" + "".join(f"({base.__name__})" for base in bases)
        of_bases = {member for base in bases for member in members(base)}
        for member in sorted(set(members(result)) - of_bases):
            found = getattr(result, member, None)
            called = f"({', '.join(parameters(found))})" if inspect.isfunction(found) else ""
            yield f"    {name}.{member}{called}"


def members(result: type) -> Iterator[str]:
    """The public attributes, properties and methods of the objects of a class. Class methods make an object,
    which only the package does."""
    if is_dataclass(result):
        yield from (field.name for field in fields(result) if not field.name.startswith("_"))
    of_tuples = {"count", "index"} if issubclass(result, tuple) else set()
    made_by = {name for name in dir(result) if inspect.ismethod(getattr(result, name, None))}
    yield from (name for name in dir(result) if not name.startswith("_") and name not in of_tuples | made_by)


def test_what_calls_return_is_what_was_declared() -> None:
    found = list(returns())
    assert found == RETURNS.read_text(encoding="utf-8").splitlines()
    named = set(" ".join(line for line in found if "->" in line).split())
    results = {each.__name__ for each in Result.__subclasses__() if each.__module__.startswith("vitreous.")}
    assert named & results <= returned().keys(), "a result of a call is not in RESULTS"


def test_names_and_parameters_are_those_that_were_declared() -> None:
    """`python tests/stability/test_api.py` writes new lists."""
    kept = KEPT.read_text(encoding="utf-8").splitlines()
    assert list(listing()) == kept, "-> run `python tests/stability/test_api.py` if the change is meant"


if __name__ == "__main__":
    KEPT.write_text("\n".join(listing()) + "\n", encoding="utf-8")
    RETURNS.write_text("\n".join(returns()) + "\n", encoding="utf-8")
