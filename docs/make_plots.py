"""The plots of the page on benchmarks, from the results that are kept.

python docs/make_plots.py    # writes docs/figures/benchmark-*.svg
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
OURS, OTHERS, MORE = "#00796d", "#b5651d", "#6b7280"


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def plot(name: str, *, width: float = 6.4, height: float = 3.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, name: str) -> None:
    path = HERE / "figures" / f"benchmark-{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    print(path)


def digits() -> None:
    """Accuracy on ten splits, beside the two baselines."""
    figure, axes = plot("digits")
    splits = result("digits")["splits"]
    keys = "accuracy", *list(splits[0])[-2:]  # the baselines are last
    for label, key, color in zip(("ViT", "tuned SVM", "k-NN"), keys, (OURS, OTHERS, MORE), strict=True):
        values = [100 * split[key] for split in splits]
        axes.plot(range(1, len(values) + 1), values, "o-", color=color, label=label, linewidth=1)
    axes.set(xlabel="split", ylabel="accuracy, %", title="1,797 handwritten digits, 20% held out")
    axes.set_xticks(range(1, len(splits) + 1))
    axes.legend(frameon=False, ncols=3, loc="lower center")
    axes.set_ylim(97, 100.2)
    save(figure, "digits")


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bars(name: str, rows: dict[str, float], *, title: str, label: str, line: float | None = None) -> None:
    figure, axes = plot(name, height=0.7 + 0.38 * len(rows))
    names = list(rows)[::-1]
    colors = [OTHERS if name.startswith(("timm", "CNN", "U-Net")) else OURS for name in names]
    drawn = axes.barh(names, [rows[name] for name in names], color=colors, height=0.62)
    axes.bar_label(drawn, labels=[short(value) for value in rows.values()][::-1], padding=3)
    if line is not None:
        axes.axvline(line, color=MORE, linewidth=1, linestyle="--")
    axes.set(title=title, xlabel=label)
    axes.margins(x=0.12)
    save(figure, name)


def inference() -> None:
    """The best engine of each kind, as multiples of timm in eager fp32."""
    kinds: dict[str, tuple[str, Callable[[str], bool]]] = {
        "timm at its best": (OTHERS, lambda name: name.startswith("timm")),
        "vitreous, bf16": ("#7fc4bd", lambda name: name == "openvino bf16"),
        "vitreous, int8": ("#33a095", lambda name: name == "openvino int8"),
        "vitreous, merged tokens": (OURS, lambda name: "merged" in name),
    }
    rows = result("inference_cpu")["rows"]
    figure, axes = plot("inference")
    wide = 0.8 / len(kinds)
    for number, (label, (color, belongs)) in enumerate(kinds.items()):
        best = [max(v["times_timm"] for k, v in row["contenders"].items() if belongs(k)) for row in rows]
        places = [place + number * wide for place in range(len(rows))]
        drawn = axes.bar(places, best, wide, label=label, color=color)
        axes.bar_label(drawn, fmt="%.1f", fontsize=7)
    images = [f"{row['batch']} image" + "s" * (row["batch"] > 1) for row in rows]
    names = [f"{row['model']}\n{each}" for row, each in zip(rows, images, strict=True)]
    axes.set_xticks([place + 1.5 * wide for place in range(len(rows))], names)
    axes.axhline(1, color=MORE, linewidth=1, linestyle="--")
    axes.set(title="Inference on two cores: the best engine", ylabel="times timm in eager fp32")
    axes.legend(frameon=False, fontsize=8)
    save(figure, "inference")


def silent_details() -> None:
    """What each detail changes, beside what another seed does."""
    rows = json.loads((RESULTS / "silent_details" / "results.json").read_text(encoding="utf-8"))["summary"]
    figure, axes = plot("silent-details", height=5.2)
    for place, row in enumerate(reversed(rows)):
        null = row["detail"] == "another seed"
        color = MORE if null else OURS if row["verdict"] == "moves accuracy" else OTHERS
        axes.errorbar(100 * row["mean"], place, xerr=100 * row["half_width"], fmt="o", color=color, capsize=3)
    axes.set_yticks(range(len(rows)), [f"{row['detail']} ({row['recipe']})" for row in reversed(rows)])
    axes.axvline(0, color=MORE, linewidth=1, linestyle="--")
    axes.set(title="Switched minus as it is, ten paired seeds", xlabel="accuracy, points")
    save(figure, "silent-details")


def crossing() -> None:
    """Accuracy by the number of training images, of equal compute."""
    rows = json.loads((RESULTS / "crossing" / "cpu.json").read_text(encoding="utf-8"))["accuracies"]
    figure, axes = plot("crossing")
    for name, color in (("ResNet", OTHERS), ("hybrid", MORE), ("ViT", OURS)):
        found = sorted((row for row in rows if row["model"] == name), key=lambda row: row["size"])
        sizes = [row["size"] for row in found]
        means, widths = ([100 * row[key] for row in found] for key in ("mean", "half_width"))
        axes.errorbar(sizes, means, yerr=widths, fmt="o-", color=color, label=name, capsize=3, linewidth=1)
    axes.set(xscale="log", xlabel="training images", ylabel="accuracy, %", ylim=(0, 100))
    axes.set_title("Vowels of syllables in fonts not learned from, 95% intervals of seeds")
    axes.legend(frameon=False, ncols=3)
    save(figure, "crossing")


def main() -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "vitreous", "font.size": 9, "axes.titlesize": 10})
    digits()
    inference()
    silent_details()
    crossing()
    names = {
        "train_500x375": "random crops of 500 x 375 JPEGs",
        "evaluate_500x375": "evaluation's crop of 500 x 375 JPEGs",
        "train_12_megapixels": "12-megapixel photographs",
        "train_packed_256": "packed JPEGs",
        "train_packed_raw_256": "packed pixels",
        "train_in_memory": "images kept in memory",
    }
    loader = result("loader")["rows"]
    ratios = {label: loader[key]["ratio"] for key, label in names.items()}
    bars("loader", ratios, title="Loading images", label="times as fast as torchvision", line=1)
    steps = result("training_step")["steps"]
    speeds = {name: each["images_per_second"] for name, each in steps.items()}
    bars("training-step", speeds, title="Training step, ViT-Ti/16, batch 32, two cores", label="images/s")
    rows = result("from_scratch")["rows"]
    scratch = {
        f"{label}, {row['set']}, {row['minutes']:g} min": 100 * row[key]["accuracy"]
        for row in rows
        for key, label in (("vitreous", "ViT"), ("cnn", "CNN"))
    }
    bars("from-scratch", scratch, title="From scratch, 24 classes of 150 images", label="accuracy, %")
    serving = result("serving")["rows"]
    speed = next(key for key in serving[0] if key.endswith("_per_second"))
    served = {
        f"{row['way']}, {row['clients']} client{'s' * (row['clients'] > 1)}": row[speed]
        for row in serving
        if row["model"] == "digits"
    }
    bars("serving", served, title="Serving the digits model over HTTP", label="images/s")


if __name__ == "__main__":
    main()
