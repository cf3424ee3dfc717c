"""A run's README.md: the model card."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from vitreous import __version__
from vitreous.checkpoints.whole_files import write_text
from vitreous.training.run import Run


def write_card(run: Run, result: Mapping[str, Any]) -> None:
    """Say what the model is, how good it is, how it was made and how to use it."""
    config = run.config
    height, width = config.model.image_size
    classes = ", ".join(f"`{name}`" for name in result["classes"][:50])
    write_text(
        run.path / "README.md",
        f"""# {run.path.name}

An image classifier: a Vision Transformer trained with vitreous {__version__}.

| | |
|---|---|
| Accuracy | {in_words(result)} |
| Data | `{config.source}`, {result["train_count"]} images to train on |
| Classes | {classes} |
| Begun from | {f"`{config.init}`" if config.init else "random weights"} |
| ImageDataset | {height}x{width}, {config.model.channels} channels |
| Parameters | {result["parameters"]:,} |
| Training | {result["seconds"]:.0f} s, seed {config.seed}, recipe {config.recipe or "of its own"} |

## Use

```bash
vitreous predict {quote(str(run.path))} image.jpg
vitreous evaluate {quote(str(run.path))}
```

```python
import vitreous as vt

model = vt.load("{run.path}")
logits = model(model.preprocessing([image]))  # a PIL image; the classes are model.labels
```

## Again

`vitreous train --config config.toml` repeats the run. `metrics.jsonl` has its course, `report.html` shows
what the model sees and where it errs.

## Limits

The accuracy holds for images like those it was measured on. The model gives one of its classes for every
image, also for one that shows none of them.
""",
    )


def in_words(result: Mapping[str, Any]) -> str:
    """How good the model is."""
    count = result.get("test_count")
    if "test_accuracy" in result:
        low, high = result["test_accuracy_interval"]
        return (
            f"{result['test_accuracy']:.2%} of {count} held-out images right "
            f"(95 % interval {low:.2%} to {high:.2%})"
        )
    if "test_mean_average_precision" in result:
        return (
            f"mean average precision {result['test_mean_average_precision']:.4f} on {count} held-out images"
        )
    return "not measured: the data has no held-out part"
