"""A run's README.md: the model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous import __version__
from vitreous.training.run import Run
from vitreous.training.state import write_text


def write_card(run: Run, result: Mapping[str, Any]) -> None:
    """Say what the model is, how good it is, how it was made and how to use it."""
    config = run.config
    height, width = config.model.image_size
    low, high = result.get("test_accuracy_interval") or (None, None)
    measured = (
        f"{result['test_accuracy']:.2%} of {result['test_count']} held-out pictures right "
        f"(95 % interval {low:.2%} to {high:.2%})"
        if low is not None
        else "not measured: the data has no held-out part"
    )
    classes = ", ".join(f"`{name}`" for name in result["classes"][:50])
    write_text(
        run.path / "README.md",
        f"""# {run.path.name}

An image classifier: a Vision Transformer trained with vitreous {__version__}.

| | |
|---|---|
| Accuracy | {measured} |
| Data | `{config.source}`, {result["train_count"]} pictures to train on |
| Classes | {classes} |
| Begun from | {f"`{config.init}`" if config.init else "random weights"} |
| Pictures | {height}x{width}, {config.model.channels} channels |
| Parameters | {result["parameters"]:,} |
| Training | {result["seconds"]:.0f} s, seed {config.seed}, recipe {config.recipe or "of its own"} |

## Use

```bash
vitreous predict {run.path} picture.jpg
vitreous evaluate {run.path}
```

```python
import vitreous as vt

model = vt.load("{run.path}")
logits = model(model.preprocessing(picture))  # a PIL picture; the classes are model.labels
```

## Again

`vitreous train --config config.toml` repeats the run. `metrics.jsonl` has its course, `report.html` shows
what the model sees and where it errs.

## Limits

The accuracy holds for pictures like those it was measured on. The model gives one of its classes for every
picture, also for one that shows none of them.
""",
    )
