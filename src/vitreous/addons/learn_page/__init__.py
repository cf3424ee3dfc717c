"""A page in which a small model runs: follow an image through every tensor, offline."""

from vitreous.extensions import Addon, Command

ADDON = Addon(
    commands={
        "learn": Command(
            "Write a page that runs a small model and shows every tensor on the way.",
            "vitreous.addons.learn_page.command",
            (
                "vitreous learn runs/mine",
                "vitreous learn ViT-Ti/16 photo.jpg --image-size 32 --json",
            ),
        )
    },
    names={"learn": "vitreous.addons.learn_page.api"},
    pages_of_runs=("vitreous.addons.learn_page.page:page_of_run",),
    words=True,
)
