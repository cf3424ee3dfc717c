"""A run's README.md: the model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous import __version__
from vitreous.checkpoints.model_card import origin_facts
from vitreous.checkpoints.whole_files import write_text
from vitreous.evaluation.result import Evaluation

if TYPE_CHECKING:
    from vitreous.tasks.running import RunResult

TEMPLATE = Path(__file__).with_suffix(".md")  # with names in braces
IMAGES: dict[str, str] = {"Images": "{model.image_size[0]}x{model.image_size[1]}, {model.channels} channels"}
MOST_CLASSES = 50  # that a card names


class Card(NamedTuple):
    """What a task says of its models.

    The texts are filled in with the fields of the run's configuration and of its result, `classes` in words.
    """

    about: str  # what the model is, a sentence
    facts: Mapping[str, str]  # rows of the table
    use: str  # a command, its RUN in place, and lines of Python
    python: str
    limits: str  # what the numbers do not say


def write_card(card: Card, result: RunResult) -> None:
    """Write what the model is, how good it is, how it was made and how to use it."""
    run, config = result.run, result.run.config
    known = {**result.to_json(), **dict(config)}
    known["classes"] = ", ".join(f"`{name}`" for name in known.get("classes", ())[:MOST_CLASSES])
    path = quote(str(run.path))
    init, recipe = known.get("init"), known.get("recipe") or "of its own"
    model: Any = getattr(result.answerer, "model", result.answerer)
    facts = {
        **measured(result.evaluation),
        "Data": f"`{config.source}`, {result.train_count} examples to train on",
        **{name: text.format(**known).replace("|", " ") for name, text in card.facts.items()},
        "Initialized from": f"`{init}`" if init else "random weights",
        **origin_facts(getattr(model, "origin", None)),
        "Parameters": f"{result.parameters:,}",
        "Training": f"{result.seconds:.0f} s, seed {config.seed}, recipe {recipe}",
    }
    text = TEMPLATE.read_text(encoding="utf-8").format(
        name=run.path.name,
        about=card.about.format(**known),
        version=__version__,
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        use=card.use.replace("RUN", path),
        evaluate=f"\nvitreous evaluate {path}" if result.evaluation else "",
        path=run.path,
        python=card.python,
        command=config.command,
        limits=card.limits.format(**known),
    )
    write_text(run.path / "README.md", text)


def measured(evaluation: Evaluation | None) -> dict[str, str]:
    """Return a row for each metric; the first says on how many examples."""
    if not evaluation:
        return {"Accuracy": "not measured: the data have no held-out part"}
    rows, count = {}, f" on {evaluation.count} held-out {evaluation.of}"
    for metric in evaluation.metrics.values():
        text = metric.text()
        if metric.interval:
            low, high = (metric.text(each) for each in metric.interval)
            text += f" (95 % interval {low} to {high})"
        rows[metric.label[0].upper() + metric.label[1:]] = text + count
        count = ""
    return rows
