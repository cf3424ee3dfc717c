"""Which format a checkpoint is of, in which of its state dicts and below which prefix."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from vitreous.checkpoints.format import (
    OF_THE_FILE,
    Changes,
    Format,
    Spec,
    checkpoint_formats,
    formats_of_addons,
    formats_of_images,
)
from vitreous.checkpoints.source import CARD, CONFIG, File, Source, likelihood
from vitreous.checkpoints.tensors import Entry
from vitreous.checkpoints.weights import listing, merged_factors
from vitreous.checkpoints.what_is_this import UNKNOWN_PARTS, network_of, what_is_this
from vitreous.errors import InputError, nearest
from vitreous.models.config import Origin
from vitreous.models.settings import check_names

log = logging.getLogger(__name__)


class Found(NamedTuple):
    """A format that recognizes a state dict of a file.

    Attributes:
        key: of the state dict in its file, and the prefix of its names there.
        source: its tensors without the prefix; the others are left out.
    """

    file: File
    format: Format
    key: str
    prefix: str
    source: Source

    @property
    def likelihood(self) -> tuple[int, int]:
        return likelihood(self.key), likelihood(self.prefix) if self.prefix else 0

    @property
    def name(self) -> str:
        return ".".join(filter(None, (self.key, self.prefix)))

    def read(self, given: Mapping[str, Any]) -> Spec:
        """Return the specification of the model, and what is to be changed of it. Nothing changes it
        afterwards.

        Args:
            given: by the user: answers to what the file leaves open, and changes. An image size is both.

        Raises:
            InputError: a name that is not a field, a question that must be answered, or a part that is not
                known here.
        """
        answers = {name: value for name, value in given.items() if name != "interpolation"}
        fields = {name: value for name, value in answers.items() if name not in OF_THE_FILE}
        if fields and self.format.overridable:
            check_names(fields, self.format.overridable)
        spec = self.format.read(replace(self.source, answers=answers))
        native = self.format.name == "vitreous"  # which says itself what its head is, and where it is from
        if not native:
            from vitreous.checkpoints.heads import with_linear_head

            spec = with_linear_head(spec)
            # One output is a number, unless something names its class or its task: the only class of a
            # classifier would have a probability of 1 for every image.
            named = bool(spec.labels) or "problem_type" in spec.source.facts.model
            if spec.task == "classification" and getattr(spec.config, "num_classes", None) == 1 and not named:
                spec = spec._replace(task="regression")
                spec.source.assumed.append("a model for regression, as it has one output")
        for conflict in spec.source.facts.conflicts:
            log.warning("%s: %s", self.file.where, conflict)
        changes = self.changes(spec, given)
        read_from = self.origin(spec, changes.positions)
        return spec._replace(
            changes=changes, read_from=read_from, origin=spec.origin if native else read_from
        )

    def changes(self, spec: Spec, given: Mapping[str, Any]) -> Changes:
        """Return what is to be changed after it was read."""
        sizes = {name: given[name] for name in ("image_size", "patch_size") if given.get(name) is not None}
        if spec.used_size:
            sizes.setdefault("image_size", spec.used_size)
        positions = spec.interpolation or self.format.interpolation
        patches = spec.patch_interpolation or self.format.patch_interpolation
        if named := given.get("interpolation"):
            from vitreous.checkpoints.resizing import check_interpolation

            check_interpolation(named)
            positions, patches = named, "timm" if named == "timm" else "flexivit"
        return Changes(sizes, positions, patches, given.get("num_classes", ""))

    def origin(self, spec: Spec, interpolation: str) -> Origin:
        """Return where the weights come from, and what had to be assumed of them."""
        described = self.file.description
        cfg, card = described.get("pretrained_cfg"), self.file.documents.get(CARD, {})
        named = described.get("architecture", described.get("architectures"))
        named = named[0] if isinstance(named, list) and named else named or spec.source.facts.name
        stated = (each.get("license") for each in (cfg, described, card) if isinstance(each, Mapping))
        license = next((str(each) for each in stated if each), None)
        return Origin(
            source=self.file.place or self.file.where,
            format=self.format.name,
            architecture=str(named) if named else None,
            license=license,
            interpolation=interpolation,
            assumed=tuple(spec.source.assumed),
        )


def recognize(file: File, format: str | None = None, key: str | None = None) -> Found:
    """Return the format of a checkpoint, and its weights without the names that training code puts before
    them, with what the file says of them.

    Args:
        format: of the checkpoint; None detects it.
        key: the state dict to take, of several in the file, or the prefix of its names.

    Raises:
        InputError: none recognizes it, or several of its parts are models; or there is no such format.
    """
    if format is not None and format not in checkpoint_formats():
        raise InputError(f"unknown format {format!r}: {nearest(format, list(checkpoint_formats()))}")
    # All parts are asked before one is taken. A training file holds the weights, their average and perhaps a
    # teacher, in any order: the first that is recognized need not be the one that is meant.
    found: list[Found] = []
    for part in candidate_state_dicts(file, key):
        found += recognized(file, *part, format)
    # Other packages have models whose weights have the names and shapes of a known format, and that compute
    # something else with them. So they are refused although a format has recognized them.
    if file.description.get("format") != "vitreous":  # that says what it is
        check_foreign(file, format)
    if found:
        chosen = most_probable(file, found)
        if chosen.name:
            log.info("%s: the weights under %s", file.where, chosen.name)
        source = with_layers_of_other_parts(file, chosen, {each.key for each in found})
    elif format:
        # The reader of the format says what is missing.
        chosen = Found(file, checkpoint_formats()[format], "", "", file.source())
        source = chosen.source
    else:
        raise InputError(f"{file.where}: {unrecognized(file)}")
    # What the file states is read last, as its format means it: a word of config.json can mean two things.
    facts = chosen.format.gather(file.documents, source)
    facts = replace(facts, fields={**facts.fields, **file.stated}, whole=file.description)
    return chosen._replace(source=replace(source, facts=facts))


def check_foreign(file: File, format: str | None) -> None:
    """Raise InputError for a model of another package that is known not to be read, by what says so."""
    for each in formats_of_images():
        if each.check_architecture:
            each.check_architecture(file, format is None)
    if what := what_is_this(UNKNOWN_PARTS, weights=all_names(file)):
        raise InputError(f"{file.where}: this is {what}")


# Parts of a training file that are not of the model.
TRAINING = re.compile("opt|sched|scaler|loss|state|criterion|callback|param_groups", re.IGNORECASE)


def with_layers_of_other_parts(file: File, chosen: Found, models: Collection[str]) -> Source:
    """Return the weights of a model, with the single layers that its file holds beside it, which may be its
    head, among what is left out. models: the parts that are models themselves."""
    widths = {entry.shape[0] for entry in chosen.source.tensors.values() if len(entry.shape) == 1}
    layers: dict[str, Entry] = {}
    for key, tensors in file.parts.items():
        shapes = [entry.shape for entry in tensors.values() if len(entry.shape) > 1]
        fits = len(shapes) == 1 and not widths.isdisjoint((shapes[0][1], shapes[0][1] / 2))
        if fits and key not in models and not TRAINING.search(key):
            layers |= {f"{key}.{name}": entry for name, entry in tensors.items()}
    return replace(chosen.source, left_out={**chosen.source.left_out, **layers})


def all_names(file: File) -> list[str]:
    """Return the names of all weights in a file, part by part."""
    return list(chain.from_iterable(file.parts.values()))


def candidate_state_dicts(file: File, key: str | None) -> Iterator[tuple[str, Source]]:
    """Yield the state dicts that may be meant, with their keys. Raises InputError: there is none at `key`."""
    if key is None or key in file.parts:
        for name in file.parts if key is None else [key]:
            yield name, file.source(name)
        return
    prefix = f"{key.rstrip('.')}."
    below: list[tuple[str, Source]] = []
    for name, tensors in file.parts.items():
        if any(each.startswith(prefix) for each in tensors):
            below.append((name, replace(file.source(name), inside="").below(prefix)))
    if not below:
        tops = {each.partition(".")[0] for each in all_names(file)}
        known = [*filter(None, file.parts), *sorted(tops)]
        raise InputError(f"{file.where} has no weights under key={key!r}: {nearest(key, known)}")
    yield from below


def recognized(file: File, key: str, source: Source, format: str | None) -> Iterator[Found]:
    """Yield the format that recognizes a state dict as it is; otherwise every prefix below which one does.

    Add-ons are asked, and imported, where no format of images recognizes it as it is, and before prefixes:
    the weights of a model that has a ViT inside are also those of a ViT.
    """
    if any(WRAPPERS.search(name) for name in source.tensors):
        source = source.renamed(lambda name: WRAPPERS.sub("", name))
    source = replace(source, tensors=merged_factors(source.tensors))
    source = without_decoder(source)
    names = "\n".join(source.tensors)
    config = file.documents.get(CONFIG, {})

    def first(asked: Iterable[Format]) -> Format | None:
        return next((each for each in asked if each.recognizes(config, names)), None)

    chosen = first([checkpoint_formats()[format]] if format else formats_of_images())
    if not chosen and not format:
        chosen = first(formats_of_addons())
    if chosen:
        yield Found(file, chosen, key, "", source)
        return
    places: dict[str, Format] = {}
    for each in [checkpoint_formats()[format]] if format else [*formats_of_addons(), *formats_of_images()]:
        for prefix in each.prefixes(names):
            places.setdefault(prefix, each)
    # not the inner names of a model that is recognized further out
    for prefix, each in places.items():
        if not any(prefix.startswith(outer) for outer in places if outer != prefix):
            yield Found(file, each, key, prefix, source.below(prefix, *each.outer_names))


# What PyTorch puts into names of modules that are sharded, recomputed or compiled.
WRAPPERS = re.compile(r"(?<![\w])_(fsdp_wrapped_module|checkpoint_wrapped_module|orig_mod)\.")


def without_decoder(source: Source) -> Source:
    """Return a masked autoencoder without its decoder, whose mask token is not DINOv2's."""
    last = "decoder_embed.weight"
    own: list[str] = []
    for name in source.tensors:
        if name.endswith(last):
            prefix = name.removesuffix(last)
            own += [f"{prefix}decoder_", f"{prefix}mask_token"]
    return source.without([name for name in source.tensors if name.startswith(tuple(own))])


# What a student that learns from itself (DINO, iBOT, MSN) has beside a student and a teacher that is its
# average; knowledge distillation has none of these, and there the student is what was trained.
SELF_DISTILLATION = re.compile(
    r"dino|ibot|last_layer|prototype|predictor|projector|mask_token|(^|\.)(center|head\.mlp)(\.|$)"
)


def most_probable(file: File, found: Sequence[Found]) -> Found:
    """Return the one to take. Raises InputError: several are as likely, or nothing tells whether a teacher is
    the average of its student."""
    best = min(each.likelihood for each in found)
    chosen, *others = [each for each in found if each.likelihood == best]
    named = [each.name for each in found]
    student = next((name for name in named if "student" in name), None)
    teacher = next((name for name in named if "teacher" in name), None)
    if student and teacher and named[found.index(chosen)] in (student, teacher):
        everything = [*file.parts, *all_names(file)]
        if not any(SELF_DISTILLATION.search(name) for name in everything):
            raise InputError(
                f"{file.where} holds a student and a teacher, and does not say which one to load: pass "
                f"key={student.rstrip('.')!r} for what was trained (knowledge distillation), or "
                f"key={teacher.rstrip('.')!r} for its average, as in DINO"
            )
    if others:
        raise InputError(f"{file.where} holds several models: pass key= with one of {listing(named)}")
    if len(found) > 1:
        taken = named[found.index(chosen)]
        rest = listing([name for name in named if name != taken])
        taken = taken if chosen.prefix else repr(taken)
        log.warning("loading the weights under %s, not those under %s", taken, rest)
    return chosen


LAYER = re.compile(r"(?:^|\.)(?:blocks|layers|layer|resblocks)\.(\d+)\.")


def unrecognized(file: File) -> str:
    """Return what a checkpoint is that no format recognizes, as the rest of a sentence."""
    names = all_names(file)
    if names and all(name.isdigit() for name in names):
        return "it holds a list of tensors, which have no names: save model.state_dict()"
    kind = file.description.get("model_type", file.description.get("architecture"))
    named = f" (config.json calls it {kind})" if kind else ""
    if what := network_of(names):
        return f"this is {what}{named}; vitreous reads Vision Transformers: {', '.join(checkpoint_formats())}"
    numbers = {int(found[1]) for name in names if (found := LAYER.search(name))}
    if numbers and 0 not in numbers:
        return (
            "its first layer has no weights: it was removed or replaced (by nn.Identity, for example); "
            "models whose "
            "layers differ are not supported"
        )
    keys = [key for key in file.parts if key]
    inside = f", under {listing(keys)}" if keys else ""
    return (
        f"no known format has weights like {', '.join(names[:5])}{inside}{named}; the formats are "
        f"{', '.join(checkpoint_formats())}"
    )
