"""The report of a regression run, and its figure: the predicted numbers over the true ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vitreous.inspection.charts import FIRST, MUTED, Chart, canvas
from vitreous.inspection.evaluation_figures import curves_figure
from vitreous.inspection.model_figures import model_exhibits
from vitreous.inspection.page import Exhibit, Headline, exhibit
from vitreous.inspection.run_report import sample_batch, write_run_report
from vitreous.tasks.regression.task import RegressionEvaluation
from vitreous.training.run import Run


def write_regression_report(run: Run, answerer: Any, evaluation: RegressionEvaluation, examples: Any) -> Path:
    """Write report.html into the run.

    Args:
        examples: the held-out images; some are shown with the model's attention.
    """
    batch, names = sample_batch(answerer, examples)
    metrics = evaluation.metrics
    low, high = metrics["r2"].interval or (float("nan"),) * 2
    error = metrics["mean_absolute_error"]
    return write_run_report(
        run.path,
        answerer,
        [
            scatter_figure(evaluation),
            curves_figure(run.path, "curves.regression"),
            *model_exhibits(answerer, batch, names),
        ],
        eyebrow="Training report, regression",
        headline=Headline(
            metrics["r2"].text(),
            f"R2 on {evaluation.count:,} held-out images; 95 % confidence interval (bootstrap): "
            f"{low:.4g} to {high:.4g}. Mean absolute error: {error.text()}.",
        ),
    )


def scatter_figure(evaluation: RegressionEvaluation) -> Exhibit:
    """Plot the predicted number over the true one."""
    both = np.concatenate([evaluation.targets, evaluation.predictions])
    ends = [both.min(), both.max()]
    with canvas(4.2, 4.0) as (figure, (axes,)):
        axes.plot(ends, ends, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(evaluation.targets, evaluation.predictions, "o", color=FIRST, markersize=3, alpha=0.6)
        axes.set_xlabel("true number")
        axes.set_ylabel("predicted number")
    return exhibit("scatter", Chart(figure))
