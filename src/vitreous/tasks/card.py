"""A run's README.md: the model card."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from vitreous import __version__
from vitreous.checkpoints.whole_files import write_text
from vitreous.tasks.task import Task

if TYPE_CHECKING:
    from vitreous.tasks.results import RunResult


def write_card(task: Task, result: RunResult) -> None:
    """Write what the model is, how good it is, how it was made and how to use it."""
    run, config = result.run, result.run.config
    card = task.card(config, result.to_json())
    path = quote(str(run.path))
    init, recipe = getattr(config, "init", None), getattr(config, "recipe", "") or "of its own"
    facts = {
        **measured(result),
        "Data": f"`{config.source}`, {result.train_count} examples to train on",
        **card.facts,
        "Initialized from": f"`{init}`" if init else "random weights",
        "Parameters": f"{result.parameters:,}",
        "Training": f"{result.seconds:.0f} s, seed {config.seed}, recipe {recipe}",
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    evaluate = f"\nvitreous evaluate {path}" if result.evaluation else ""
    write_text(
        run.path / "README.md",
        f"""# {run.path.name}

{card.about}, trained with vitreous {__version__}.

| | |
|---|---|
{rows}

## Use

```bash
vitreous {card.use.replace("RUN", path)}{evaluate}
```

```python
import vitreous as vt

model = vt.load("{run.path}")
{card.python}
```

## Reproduce

`vitreous {config.command} --config config.toml` repeats the run. `metrics.jsonl` has its course,
`report.html` its figures.

## Limits

{card.limits}
""",
    )


def measured(result: RunResult) -> dict[str, str]:
    """Return a row for each metric."""
    if not result.evaluation:
        return {"Accuracy": "not measured: the data have no held-out part"}
    rows = {}
    for metric in result.evaluation.metrics.values():
        interval = ""
        if metric.interval:
            low, high = (metric.text(each) for each in metric.interval)
            interval = f" (95 % interval {low} to {high})"
        rows[metric.label[0].upper() + metric.label[1:]] = f"{metric.text()}{interval}"
    first = next(iter(rows))
    rows[first] += f" on {result.evaluation.count} held-out {result.evaluation.of}"
    return rows
