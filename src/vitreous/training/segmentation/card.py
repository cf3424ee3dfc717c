"""The README.md of a segmenter's run: the model card."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from vitreous import __version__
from vitreous.checkpoints.whole_files import write_text
from vitreous.models.segmenter import SegmenterConfig
from vitreous.training.run import Run


def write_card(run: Run, result: Mapping[str, Any]) -> None:
    """Say what the model is, how good it is, how it was made and how to use it."""
    config = run.config
    assert isinstance(config.model, SegmenterConfig)  # as a segmenter's run has it
    height, width = config.model.image_size
    rows, columns = config.model.patch_size
    classes = ", ".join(f"`{name}`" for name in result["classes"][:50])
    write_text(
        run.path / "README.md",
        f"""# {run.path.name}

A Segmenter (arXiv 2105.05633): a Vision Transformer that gives each pixel a class, trained with
vitreous {__version__}.

| | |
|---|---|
| Mean IoU | {in_words(result)} |
| Data | `{config.source}`, {result["train_count"]} images to train on |
| Classes | {classes} |
| Begun from | {f"`{config.init}`" if config.init else "random weights"} |
| ImageDataset | seen at {height}x{width}, patches of {rows}x{columns}, {config.model.channels} channels |
| Decoder | {config.model.decoder}, {config.model.cells}x{config.model.cells} logits of a class in a patch |
| Parameters | {result["parameters"]:,} |
| Training | {result["seconds"]:.0f} s, seed {config.seed}, recipe {config.recipe or "of its own"} |

## Use

```bash
vitreous predict {quote(str(run.path))} image.jpg --out masks/
vitreous evaluate {quote(str(run.path))}
```

```python
import vitreous as vt

model = vt.load("{run.path}")
logits = model(model.preprocessing([image]))  # (1, classes, H, W); the classes are model.labels
```

## Again

`vitreous train --task segmentation --config config.toml` repeats the run. `metrics.jsonl` has its course,
`report.html` shows images, masks, and where they differ.

## Limits

The figures hold for images like those it was measured on. Every pixel gets one of the classes, also where
it shows none of them. An image is squashed to {height}x{width} before it is seen: what is smaller than a
pixel there is lost.
""",
    )


def in_words(result: Mapping[str, Any]) -> str:
    """How good the model is."""
    if "test_miou" not in result:
        return "not measured: the data has no held-out part"
    low, high = result["test_miou_interval"]
    return (
        f"{result['test_miou']:.2%} on {result['test_count']} held-out images (95 % interval {low:.2%} to "
        f"{high:.2%}); {result['test_pixel_accuracy']:.2%} of the pixels right; calling every pixel the "
        f"first class would get {result['baseline_miou']:.2%}"
    )
