"""The fastest way to compute a model on this machine: engines, int8, token merging, each measured.

`measuring` measures and keeps, `choice` is what was kept, which `predict`, `evaluate` and others use.
`openvino` and `quantization` add a format and int8 to `vitreous export`.
"""

from vitreous.extensions import Addon, Command

ADDON = Addon(
    commands={
        "optimize": Command(
            "Find the fastest way to run a model on this machine: engine, bf16, int8, token merging.",
            "vitreous.addons.optimize.command",
            (
                "vitreous optimize runs/mine photos/ --engines eager",
                "vitreous optimize runs/mine photos/ --budget 1% --engines eager --json",
            ),
        )
    },
    names={"optimize": "vitreous.addons.optimize.api"},
    caches={"engines": "models that OpenVINO has compiled"},
    programs=("vitreous.addons.optimize.openvino:OPENVINO",),
    writers=("vitreous.addons.optimize.writers:WRITERS",),
    substitutes=("vitreous.addons.optimize.choice:substitute",),
)
