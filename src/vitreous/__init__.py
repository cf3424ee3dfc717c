"""vitreous: the Vision Transformer, whole.

    import vitreous as vt
    model = vt.create("ViT-B/16", num_classes=10, image_size=224)
    model = vt.load("B_16.npz")                  # of any supported format, which is detected
    vt.save(model, "out.npz", format="google")
    logits = model(model.preprocessing(images))
    run = vt.train("images/")                    # vt.Run: .model, .metrics, .evaluation, .report, .resume()
    vt.predict(run, "photo.jpg"); vt.inspect(run); vt.embed(model, images)

Everything is imported on first use, so that `import vitreous` itself costs next to nothing. Type checkers
read the same names in `__init__.pyi`.
"""

from importlib import import_module as _import_module

from vitreous.extensions import addons as _addons

# The public names of the core, and the modules that they are in.
_CORE = {
    "evaluate": "vitreous.api.evaluation",
    "predict": "vitreous.api.prediction",
    "check_data": "vitreous.api.checks",
    "doctor": "vitreous.api.checks",
    "pack_data": "vitreous.api.checks",
    "calibrate": "vitreous.api.deployment",
    "export": "vitreous.api.deployment",
    "embed": "vitreous.api.features",
    "probe": "vitreous.api.features",
    "attribute": "vitreous.api.inspection",
    "inspect": "vitreous.api.inspection",
    "pretrain": "vitreous.api.pretraining",
    "train": "vitreous.api.training",
    "compare_recipes": "vitreous.api.pretraining",
    "convert": "vitreous.api.models",
    "describe": "vitreous.api.models",
    "draw": "vitreous.api.models",
    "list_recipes": "vitreous.api.pretraining",
    "push_to_hub": "vitreous.api.models",
    "compare": "vitreous.api.comparison",
    "Predictor": "vitreous.api.predictor",
    "Run": "vitreous.api.run",
    "list_families": "vitreous.checkpoints.formats",
    "list_formats": "vitreous.checkpoints.formats",
    "load": "vitreous.checkpoints.loading",
    "save": "vitreous.checkpoints.saving",
    "list_encoders": "vitreous.checkpoints.pretrained_encoders",
    "resize": "vitreous.checkpoints.resizing",
    "InputError": "vitreous.errors",
    "NativeAspect": "vitreous.evaluation.native_aspect",
    "capture_attention": "vitreous.inspection.capture",
    "BiT": "vitreous.models.bit",
    "BiTConfig": "vitreous.models.bit",
    "ViTConfig": "vitreous.models.config",
    "create": "vitreous.models.names",
    "list_models": "vitreous.models.catalog",
    "Preprocessing": "vitreous.models.preprocessing",
    "ViT": "vitreous.models.vit",
    "MAE": "vitreous.tasks.pretraining.mae",
}
_MODULES = _CORE | {name: module for addon in _addons().values() for name, module in addon.names.items()}

__all__ = ["__version__", "sklearn", *sorted(_MODULES)]


def __getattr__(name: str) -> object:
    if name == "sklearn":
        return _import_module("vitreous.sklearn")
    if name == "__version__":  # pyproject.toml is where it is written
        from importlib.metadata import version

        globals()[name] = version("vitreous")
        return globals()[name]
    if name not in _MODULES:
        raise AttributeError(f"module 'vitreous' has no attribute {name!r}")
    from vitreous.errors import with_checked_names

    value: object = with_checked_names(getattr(_import_module(_MODULES[name]), name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
