"""Recipes beside big_vision and vit_jax, whose models and optimizers run in JAX. `provenance.py` runs it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from provenance_rows import (
    SHORT,
    STEPS,
    Follower,
    Row,
    State,
    batches,
    build,
    compared,
    copied,
    follow,
    initial,
    small,
    with_source,
)
from torch import nn

import vitreous as vt
from vitreous.data.image_samples import Batch


class NoTensorFlow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """big_vision imports TensorFlow for files and data; its models and optimizers call nothing of it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] == "tensorflow":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock()
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module: Any) -> None:
        pass


def loaded(tree: Any, prefix: str = "", **options: Any) -> nn.Module:
    """Make our model of a tree of parameters."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    flat = {prefix + "/".join(key.key for key in path): np.asarray(value) for path, value in leaves}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "weights.npz"), **flat)  # type: ignore[arg-type]
        return vt.load(Path(folder, "weights.npz"), image_size=(32, 32), **options)


def with_drawn_head(params: Any, bias: float = 0.0) -> Any:
    """Parameters with a head that is not zero, which would hide the gradients below it."""
    import jax

    head = params["head"]
    kernel = jax.random.normal(jax.random.PRNGKey(1), head["kernel"].shape) * 0.02
    return {**params, "head": {"kernel": kernel, "bias": head["bias"] + bias}}


def s16_of_big_vision(sources: Path) -> Iterator[Row]:
    """`s16-baseline` beside big_vision's model, loss and optimizer, of two layers."""
    model = {"variant": "S/8", "rep_size": True, "pool_type": "gap", "posemb": "sincos2d"}
    loaded_so = partial(loaded, prefix="params/", heads=6, pooling={"kind": "mean"})
    yield from from_big_vision(sources, "s16-baseline", model, "softmax_xent", loaded_so)


def augreg_of_big_vision(sources: Path) -> Iterator[Row]:
    """`augreg` beside the same with a class token, which has no position there; here it has one, as in the
    published weights. Initial weights are beside vit_jax."""
    from vitreous.training.initial_model import freeze

    def loaded_so(tree: Any) -> nn.Module:
        model: Any = loaded(tree, prefix="params/", heads=3)
        freeze(model, ["position.prefix"])
        return model

    model = {"variant": "Ti/8", "pool_type": "tok", "posemb": "learn"}
    yield from from_big_vision(sources, "augreg", model, "sigmoid_xent", loaded_so)


def from_big_vision(
    sources: Path, name: str, options: dict[str, Any], loss: str, ours_of: Callable[[Any], nn.Module]
) -> Iterator[Row]:
    """A recipe beside big_vision's model, loss and optimizer.

    Args:
        options: of their model.
        loss: the name of theirs.
        ours_of: makes our model of their parameters.
    """
    import jax
    import jax.numpy as jnp
    import ml_collections

    sys.meta_path.insert(0, NoTensorFlow())
    sys.path.insert(0, str(sources / "big_vision"))
    vit = importlib.import_module("big_vision.models.vit")
    optim = importlib.import_module("big_vision.optax")
    objective = getattr(importlib.import_module("big_vision.utils"), loss)

    source, data = f"big_vision in JAX {jax.__version__}", batches(32)
    config, training = small(name, drop_path=0.0)
    net = vit.Model(num_classes=10, depth=2, **options)
    params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 32, 32, 3)))["params"]
    if loss == "softmax_xent":
        found = initial(build(config, training), ours_of(params), lambda n: "position" not in n)
        yield Row(name, "weights", *with_source(found, source))
    params = with_drawn_head(dict(params), getattr(training.head, "bias", 0.0))
    ours = follow(ours_of(params), training, data)
    decay = training.optimizer.weight_decay * training.peak_lr
    loss_of = partial(loss_of_big_vision, net, objective)
    # Their first moment is in bfloat16, and for once in float32 as ours is.
    for peer, moment in (("", "bfloat16"), ("first moment in float32", "float32")):
        tx, _ = optim.make(
            ml_collections.ConfigDict(
                {
                    "optax_name": "scale_by_adam",
                    "optax": {"mu_dtype": moment},
                    "grad_clip_norm": training.optimizer.clip_norm,
                    "lr": training.peak_lr,
                    "wd": decay,
                    "schedule": {"warmup_steps": 0, "decay_type": "cosine"},
                }
            ),
            params,
            sched_kw={"total_steps": STEPS, "batch_size": 16, "data_size": 1000},
        )
        theirs = followed_in_jax(loss_of, tx, params, data, ours_of)
        for row in compared(name, source, ours, theirs):
            yield row._replace(peer=peer)


def loss_of_big_vision(net: Any, objective: Any, weights: Any, images: Any, labels: Any) -> Any:
    import jax

    logits, _ = net.apply({"params": weights}, images)
    return objective(logits=logits, labels=jax.nn.one_hot(labels, 10))


def from_vit_jax(sources: Path) -> Iterator[Row]:
    """The initial weights of vit_jax's ViT and hybrid, and fine-tuning with SGD as its train.py does."""
    import jax
    import jax.numpy as jnp
    import ml_collections

    sys.meta_path.insert(0, NoTensorFlow())
    sys.path.insert(0, str(sources / "vision_transformer"))
    vit = importlib.import_module("vit_jax.models_vit")
    rates = importlib.import_module("vit_jax.utils").create_learning_rate_schedule
    import optax

    source, example = f"vit_jax in JAX {jax.__version__}", jnp.zeros((1, 32, 32, 3))
    blocks = {"num_layers": 2, "mlp_dim": 768, "num_heads": 3, "dropout_rate": 0.0}
    sizes = {"num_classes": 10, "hidden_size": 192, "transformer": {**blocks, "attention_dropout_rate": 0.0}}
    mine = {"width": 192, "mlp_dim": 768, "heads": 3}
    ours_of = partial(loaded, heads=3)

    def params_of(net: Any) -> Any:
        return net.init(jax.random.PRNGKey(0), example, train=False)["params"]

    patches = ml_collections.ConfigDict({"size": (8, 8)})
    net = vit.VisionTransformer(patches=patches, representation_size=192, **sizes)
    theirs = ours_of(params_of(net))
    for name in ("paper-jft", "paper-imagenet1k", "paper-imagenet21k"):
        found = initial(build(*small(name, representation_size=192, **mine)), theirs)
        yield Row(name, "weights", *with_source(found, source))

    stem = {"num_layers": (1, 1), "width_factor": 1.0}
    net = vit.VisionTransformer(
        patches=ml_collections.ConfigDict({"size": (1, 1)}), resnet=ml_collections.ConfigDict(stem), **sizes
    )
    hybrid = {"kind": "resnet", "layers": (1, 1), "width_factor": 1.0}
    found = initial(build(*small("augreg", stem=hybrid, **mine)), ours_of(params_of(net)))
    yield Row("augreg", "weights", *with_source(found, f"{source}, a hybrid"))

    net = vit.VisionTransformer(patches=patches, **sizes)
    start = params_of(net)
    params, data = with_drawn_head(dict(start)), batches(32)
    known: dict[Any, tuple[Follower, dict[str, Follower]]] = {}

    def loss_of(weights: Any, images: Any, labels: Any) -> Any:
        logits = net.apply({"params": weights}, images, train=False)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    for name in ("paper-fine-tuning", "vtab-1k", "paper-fine-tuning-imagenet"):
        config, training = small(name, **mine)
        yield Row(name, "weights", *with_source(initial(build(config, training), ours_of(start)), source))
        what = (training.peak_lr, training.schedule, training.optimizer)
        if what not in known:  # VTAB's is that of CIFAR-10
            known[what] = follow(ours_of(params), training, data), {}
        ours, followers = known[what]
        moments = {"": "bfloat16"}  # of their momentum; at a high rate also in float32, as ours is
        if name == "paper-fine-tuning-imagenet":
            moments["momentum in float32"] = "float32"
        for peer, moment in moments.items():
            if moment not in followers:
                sgd = optax.sgd(
                    learning_rate=rates(STEPS, training.peak_lr, "cosine", 0),
                    momentum=training.optimizer.momentum,
                    accumulator_dtype=moment,
                )
                tx = optax.chain(optax.clip_by_global_norm(training.optimizer.clip_norm), sgd)
                followers[moment] = followed_in_jax(loss_of, tx, params, data, ours_of)
            for row in compared(name, source, ours, followers[moment]):
                yield row._replace(peer=peer)


def followed_in_jax(
    loss_of: Callable[..., Any], tx: Any, params: Any, data: list[Batch], ours_of: Callable[[Any], nn.Module]
) -> Follower:
    """Train in JAX with an optimizer of optax, twice.

    Args:
        loss_of: of parameters, images (B, H, W, 3) and labels (B,).
        ours_of: makes our model of a tree like the parameters'.
    """
    import jax
    import jax.numpy as jnp
    import optax

    @jax.jit  # type: ignore[untyped-decorator]
    def step(weights: Any, state: Any, images: Any, labels: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
        updates, state = tx.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, loss, gradient

    def train(params: Any, data: list[Batch]) -> Follower:
        state, losses, gradient, after, weights = tx.init(params), [], {}, {}, params
        moments: State = {}
        for number, batch in enumerate(data):
            images = jnp.asarray(batch.images.permute(0, 2, 3, 1).numpy())
            weights, state, loss, raw = step(weights, state, images, jnp.asarray(batch.targets.numpy()))
            losses.append(float(loss))
            if number == 0:
                norm = math.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(raw)))
                clipped = jax.tree.map(partial(jnp.multiply, min(1.0, 1.0 / norm)), raw)
                gradient = copied(ours_of(clipped))
            if number + 1 == SHORT:
                after, moments = copied(ours_of(weights)), moments_of(state, ours_of)
        return Follower(gradient, copied(ours_of(params)), after, losses, moments, {})

    found = train(params, data)
    again = train(jax.tree.map(one_rounding_apart, params), data[:SHORT])
    return found._replace(again=again.state)


def one_rounding_apart(weights: Any) -> Any:
    """Every weight moved to the next number above or below it."""
    above = np.random.default_rng(2).random(weights.shape) < 0.5
    return np.nextafter(weights, np.where(above, np.inf, -np.inf).astype(weights.dtype))


def moments_of(state: Any, ours_of: Callable[[Any], nn.Module]) -> State:
    """The state of an optimizer of optax under the names of torch."""
    import jax
    import jax.numpy as jnp
    from optax.tree_utils import tree_get

    found = {}
    for theirs, name in (("mu", "exp_avg"), ("nu", "exp_avg_sq"), ("trace", "momentum_buffer")):
        tree = tree_get(state, theirs)
        if tree is not None:
            found[name] = copied(ours_of(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)))
    return found
