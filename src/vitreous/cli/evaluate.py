"""`vitreous evaluate RUN [DATA]`."""

from __future__ import annotations

from vitreous.cli.options import (
    BatchSize,
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Precision,
    Settings,
    Workers,
    print_json,
    resized,
    settings_tree,
)


def evaluate(
    run: str,
    data: str | None = None,
    /,
    *,
    image_size: ImageSize = None,
    batch_size: BatchSize = 64,
    workers: Workers = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Evaluate a model on data that it did not learn from, each example once.

    Parameters
    ----------
    run
        A run directory, or any checkpoint with a head.
    data
        By default the held-out part of what the run was trained on.
    """
    from vitreous.api.arguments import progress_bar
    from vitreous.cli.tables import print_table
    from vitreous.cli.training import print_metrics
    from vitreous.data.loading import worker_count
    from vitreous.tasks import task_named
    from vitreous.tasks.running import evaluate_model, task_of
    from vitreous.training.device import pick_device

    task = task_of(run) or task_named("classification")
    given = {"--image-size": image_size, "--workers": workers, "--set": set, "--config": config}
    task.check_options("evaluate", given)
    settings = settings_tree(config, set)
    overrides = {**settings.pop("model", {}), **resized(image_size)}
    with progress_bar("evaluating") as progress:
        found = evaluate_model(
            run,
            data,
            settings,
            device=pick_device(device),
            precision=precision,
            batch_size=batch_size,
            workers=worker_count(workers),
            progress=progress,
            overrides=overrides,
        )
    if json:
        print_json(found.to_json())
        return
    evaluation = found.evaluation
    print(f"{run} on {found.source}, {found.part}, in {evaluation.seconds:.1f} s\n")
    print_metrics(evaluation)
    for table in evaluation.tables():
        print(f"\n{table.title}" if table.title else "")
        print_table(table.headers, table.rows, words=table.words)
    for path, reason in evaluation.failed.items():
        print(f"could not be decoded: {path}: {reason}")
