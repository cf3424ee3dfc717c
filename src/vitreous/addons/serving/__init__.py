"""`vitreous serve`: one model of images over HTTP, in one process, with a web page.

A request passes through the modules in this order: `limits` (who may ask, how much, how fast), `app` (its
address, the images in its body, and the way through it), `batching` (what arrives together is computed
together), `models` (the answers). `page` makes the web page; `run` starts and stops all of it,
and loads the model again.
"""

from vitreous.extensions import Addon, Command

ADDON = Addon(
    commands={
        "serve": Command(
            "Serve a model over HTTP, with a web page.",
            "vitreous.addons.serving.command",
            ("vitreous serve runs/mine", "vitreous serve ViT-Ti/16 --port 8080 --json"),
        )
    },
    names={"serve": "vitreous.addons.serving.api"},
    next_steps={"train": {"serve": "vitreous serve {run}"}},
    reads_outputs=True,
    words=True,
)
