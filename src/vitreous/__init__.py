"""vitreous: the Vision Transformer, whole.

    import vitreous as vt
    model = vt.create("ViT-B/16", num_classes=10, image_size=224)
    model = vt.load("B_16.npz")                  # any published format; detected from the content
    vt.save(model, "out.npz", format="google")
    logits = model(model.preprocessing(images))
    run = vt.train("images/")                    # vt.Run: .model, .metrics, .evaluation, .report, .resume()
    vt.predict(run, "photo.jpg"); vt.inspect(run); vt.embed(model, images)

Everything is imported on first use, so that `import vitreous` itself costs next to nothing. What there is,
and in which module, `__init__.pyi` says, which type checkers read as well.
"""

import re as _re
from importlib import import_module as _import_module

__version__ = "0.1.0"

with open(f"{__file__}i", encoding="utf-8") as _stub:
    _PLACES = _re.findall(r"(?m)^from (vitreous\.\S+) import (\w+) as", _stub.read())
_MODULES = {name: module for module, name in _PLACES}

__all__ = ["__version__", "sklearn", *sorted(_MODULES)]


def __getattr__(name: str) -> object:
    if name == "sklearn":
        return _import_module("vitreous.sklearn")
    if name not in _MODULES:
        raise AttributeError(f"module 'vitreous' has no attribute {name!r}")
    value: object = getattr(_import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
