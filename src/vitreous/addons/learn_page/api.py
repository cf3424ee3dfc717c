"""`vitreous.learn`: a page that runs a small model and shows each of its tensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from vitreous.addons.learn_page.options import LearnOptions
from vitreous.api.arguments import changed_fields, is_fresh, model_name, path_of_run
from vitreous.api.model_source import resolve_model
from vitreous.errors import InputError, check_free, require_packages, writing_to
from vitreous.languages import speaking
from vitreous.models.stored import ImageLike
from vitreous.training.options import with_options

if TYPE_CHECKING:
    from vitreous.addons.learn_page.page import LearnPage
    from vitreous.data.image_list import Failure


@with_options(LearnOptions)
def learn(model: Any = None, images: Any = None, **options: Unpack[LearnOptions]) -> LearnPage:
    """Write one offline HTML page that runs a model in the browser and shows every tensor on the way.

    Example:
        >>> vt.learn("runs/photos", out="learn.html").page.name  # open it in a browser
        'learn.html'

    Args:
        model: a run, a checkpoint in any format, a model name, or a model; by default the paper's model on
            handwritten digits, which is included in the package. Two more are included: "photo", for
            photographs (also from a camera), and "emoji", for emoji in color. If the model is an ensemble,
            the page runs its Vision Transformer. If it has more than 8 million parameters (16 million if
            8 bits are enough for a weight), the page shows recorded tensors instead.
        images: one or many paths, PIL images, arrays or tensors to try; by default held-out images of the
            run, or handwritten digits for any other model.
        options: of `LearnOptions`.

    Raises:
        InputError: the model or an image does not exist, or the page cannot run the model.
    """
    require_packages("jinja2", "matplotlib", extra="train", what="learn")
    from vitreous.addons.learn_page.page import BUNDLED, bundled_model_facts, write_learn_page
    from vitreous.api.inspection import default_folder

    named = "digits" if model is None else model
    own = isinstance(named, str) and named in BUNDLED and not Path(named).exists()
    model = BUNDLED[named] if own else path_of_run(model)
    fields = changed_fields(options)
    opened = resolve_model(model, **fields)
    run = Path(model_name(model))
    out = options["out"]
    of_run = not out and (run / "config.toml").is_file()  # whose page is replaced
    page = Path(out or "learn.html")
    if of_run:
        page = run / page
    elif not out and not own:
        page = default_folder(model) / page
    if not of_run:
        check_free(page)
    with speaking(options["language"]), writing_to(page):
        samples, failed = samples_of(model, opened, images)
        facts = bundled_model_facts(model) if own else {}
        if images is not None:
            facts.pop("credit", None)  # that of its own images
        found = write_learn_page(
            page,
            opened,
            samples,
            name=run.name,
            trained=not is_fresh(model),
            ask_browser=options["language"] is None,
            facts=facts,
            bundled=named if own else "",
            new=not of_run,
        )
    return replace(found, failed=failed)


def samples_of(
    model: Any, opened: Any, images: Any
) -> tuple[list[tuple[ImageLike, str]], tuple[Failure, ...]]:
    """Return images to try, with their labels, and those that cannot be read, of some that are named. Raises
    InputError: not one image can be read."""
    from vitreous.addons.learn_page.page import MOST_SAMPLES, bundled_samples, labeled_samples
    from vitreous.api.inspection import held_out_examples
    from vitreous.data.image_list import Failure, image_list
    from vitreous.models.stored import BadImage
    from vitreous.tasks import task_named
    from vitreous.tasks.answerer import task_of

    failed: list[Failure] = []
    if images is None and (samples := bundled_samples(model)):
        return samples, ()
    if images is not None:
        found = image_list(images)
        for row in found.sample(MOST_SAMPLES):
            try:
                found.opened(row).check()
            except BadImage as bad:
                failed.append(Failure(bad.name, bad.reason))
    else:
        task = task_of(model) or task_named("classification")
        found, _ = held_out_examples(task, model, opened)
    if not (samples := labeled_samples(found)):
        raise InputError("none of the images could be read: pass JPEG or PNG files that open in a viewer")
    return samples, tuple(failed)
