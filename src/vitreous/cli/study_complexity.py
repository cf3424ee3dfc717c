"""`vitreous study complexity`."""

from __future__ import annotations

from pathlib import Path

from vitreous.cli.options import print_json


def study_complexity(*, out: Path | None, quick: bool, json: bool) -> int:
    """Time attention, recurrence and convolution over length and width, beside the formula."""
    from vitreous.cli.tables import print_table
    from vitreous.studies import complexity
    from vitreous.studies.results_folder import results_folder

    values = complexity.QUICK if quick else complexity.FULL
    with results_folder(out or Path("studies") / "complexity") as folder:
        results = complexity.measure(values)
        files = complexity.write(results, values, folder)
    if json:
        print_json({"layers": [each.to_json() for each in results], "files": [str(file) for file in files]})
        return 0
    print(f"{complexity.TITLE}\n{complexity.PLACE}\n")
    print_table(complexity.HEADER, [complexity.cells(each) for each in results])
    print(f"\nwritten: {', '.join(str(file) for file in files)}")
    return 0
