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
    parse_settings,
    parse_size,
    print_json,
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
    import vitreous as vt
    from vitreous.cli.tables import print_table
    from vitreous.cli.training import print_metrics

    found = vt.evaluate(
        run,
        data,
        image_size=parse_size(image_size),
        batch_size=batch_size,
        workers=workers,
        device=device,
        precision=precision,
        settings=parse_settings(set),
        config=config,
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
