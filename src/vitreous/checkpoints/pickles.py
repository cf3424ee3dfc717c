"""The objects of a pickle, inert: no class that it names is imported, and no function is called. Tensors
become `StoredTensor`s, which say where their numbers are; mappings of any class become dictionaries;
everything else is an `Object` that knows the name of its class."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch

from vitreous.errors import InputError

# What makes nothing larger than what the file holds of it.
OPCODES = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.REDUCE, pickle.BUILD),
    pickle.BINPERSID,
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG1, pickle.LONG4, pickle.BINFLOAT, pickle.BINUNICODE, pickle.SHORT_BINUNICODE),
    *(pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINBYTES, pickle.SHORT_BINBYTES),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET, pickle.MEMOIZE),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET),
)
STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
DTYPES = {
    str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)
}
DEEPEST = 12  # containers around a state dict


@runtime_checkable
class ShapedTensor(Protocol):
    """A tensor, in memory or not."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class StoredTensor(NamedTuple):
    """A tensor: where its numbers are, the arguments of `torch._utils._rebuild_tensor_v2`."""

    storage: tuple[Any, ...]  # "storage", type, name, device, length
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False
    hooks: object = None
    metadata: object = None

    def __setstate__(self, state: object) -> None:
        """Keep the class as it is, which a hostile pickle could change otherwise."""


class GlobalName(str):
    """The name of a class or a function, where a pickle names one."""

    def __setstate__(self, state: object) -> None: ...


class Object(dict[object, object]):
    """What a class or a function would have made, with the items that it was filled with as a mapping."""

    kind: GlobalName = GlobalName("")
    state: Any = None

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __setstate__(self, state: object) -> None:
        self.state = state

    def extend(self, items: object) -> None: ...

    def append(self, item: object) -> None: ...

    def add(self, item: object) -> None: ...


class StoredType(str):
    """The type of the numbers of a NumPy array, "f4"; its state tells their order of bytes."""

    def __setstate__(self, state: object) -> None:
        self.order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """None for anything but plain numbers."""
        order = getattr(self, "order", "=")
        known = self[:1] in "fiub" and self[1:].isdigit() and order in ("<", ">", "=", "|")
        return np.dtype(f"{order}{self}") if known else None


class StoredArray:
    """A NumPy array, whose numbers are among the objects."""

    shape: tuple[int, ...] = ()
    state: Any = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (_, tuple() as shape, StoredType(), _, bytes()) if all(type(n) is int for n in shape):
                self.shape, self.state = shape, state

    def read(self) -> torch.Tensor:
        """Read it. Raises InputError: its bytes are not those of its shape, or not numbers."""
        try:
            _, shape, kind, fortran, content = self.state
            numbers = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran else "C")
            return torch.from_numpy(numbers.astype(numbers.dtype.newbyteorder("=")))
        except (TypeError, ValueError):
            raise InputError("a NumPy array in the file is damaged, or does not hold plain numbers") from None


class StoredModule:
    """A module of PyTorch that was stored whole, with its attributes and those of the modules in it."""

    def __init__(self, stored: Object) -> None:
        self.stored = stored

    @property
    def class_name(self) -> str:
        return self.stored.kind.rpartition(".")[2]

    def __getattr__(self, name: str) -> Any:
        state = self.stored.state
        inner = (state.get(each) or {} for each in ("_modules", "_parameters", "_buffers"))
        for part in (state, *inner):
            if name in part:
                found = part[name]
                return StoredModule(found) if is_module(found) else found
        raise AttributeError(name)

    def __iter__(self) -> Iterator[StoredModule]:
        """Yield the modules in it."""
        inner = self.stored.state["_modules"]
        return (StoredModule(each) for each in inner.values() if is_module(each))

    def modules(self) -> Iterator[StoredModule]:
        """Yield the module itself and all in it, each once."""
        waiting, seen = [self.stored], set()
        while waiting:
            each = waiting.pop(0)
            if id(each) in seen:
                continue
            seen.add(id(each))
            yield StoredModule(each)
            waiting[:0] = [inner for inner in each.state["_modules"].values() if is_module(inner)]


class ObjectReader(pickle._Unpickler):
    """Unpickles into `StoredTensor`, `Object` and plain containers. (The faster unpickler in C refuses the
    enumerations of TorchScript.)"""

    def find_class(self, module: str, name: str) -> object:
        if module == "torch" and (name in STORAGES or name in DTYPES):
            return STORAGES.get(name) or DTYPES[name]
        return GlobalName(f"{module}.{name}")

    def persistent_load(self, pid: object) -> object:
        return pid

    def reduce(self) -> None:
        args = self.stack.pop()  # type: ignore[attr-defined]
        self.stack[-1] = result_of_call(self.stack[-1], args)  # type: ignore[attr-defined]

    def new(self) -> None:
        self.stack.pop()  # type: ignore[attr-defined]
        self.stack[-1] = result_of_call(self.stack[-1], ())  # type: ignore[attr-defined]

    def new_ex(self) -> None:
        self.stack.pop()  # type: ignore[attr-defined]
        self.new()

    dispatch: ClassVar[dict[int, Any]] = {
        **{code[0]: pickle._Unpickler.dispatch[code[0]] for code in OPCODES},
        pickle.REDUCE[0]: reduce,
        pickle.NEWOBJ[0]: new,
        pickle.NEWOBJ_EX[0]: new_ex,
    }


def result_of_call(kind: object, args: Any) -> object:
    """Return what is kept of a call."""
    match kind, args:
        case "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2", _:
            return StoredTensor(*args)
        case "torch._utils._rebuild_tensor_v3", (
            storage,
            offset,
            shape,
            stride,
            _,
            _,
            torch.dtype() as dtype,
            *_,
        ):
            tag, _, name, device, length, *_ = storage  # in bytes
            return StoredTensor((tag, dtype, name, device, length // dtype.itemsize), offset, shape, stride)
        case "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", (data, *_):
            return data
        case "torch._tensor._rebuild_from_type_v2", (function, _, inner, *_):
            return result_of_call(function, inner)
        case "torch._utils._rebuild_wrapper_subclass", (
            GlobalName() as kind,
            *_,
        ):  # a tensor of another class
            pass
        case "_codecs.encode", (str() as text, "latin1" | "latin-1"):
            return text.encode("latin-1", "ignore")
        case "numpy.dtype", (str() as name, *_):
            return StoredType(name)
        case "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct", _:
            return StoredArray()
        case "torch.Size", ((tuple() | list()) as sizes,):
            return tuple(sizes)
        case "builtins.set" | "__builtin__.set", (list() as items,):
            return frozenset(each for each in items if isinstance(each, str))
    found = Object()
    found.kind = GlobalName(kind) if isinstance(kind, str) else GlobalName(type(kind).__name__)
    # an OrderedDict of Python 2 is made from a list of pairs
    if found.kind == "collections.OrderedDict" and args and isinstance(args[0], list):
        for pair in args[0]:
            if isinstance(pair, list | tuple) and len(pair) == 2:
                found[pair[0]] = pair[1]
    return found


def is_module(value: object) -> TypeGuard[Object]:
    """Return whether it is a module of PyTorch, stored whole."""
    return isinstance(value, Object) and isinstance(value.state, dict) and "_modules" in value.state


def module_tensors(module: Object, seen: set[int], prefix: str = "") -> Iterator[tuple[str, ShapedTensor]]:
    """Yield the parameters and buffers of a module of PyTorch that was stored whole, by their names; what is
    shared has its first name."""
    state = module.state
    seen.add(id(module))
    hidden = state.get("_non_persistent_buffers_set") or ()
    for part in ("_parameters", "_buffers"):
        for name, value in (state.get(part) or {}).items():
            if value is not None and name not in hidden:
                yield f"{prefix}{name}", value
    for name, inner in state["_modules"].items():
        if is_module(inner) and id(inner) not in seen:
            yield from module_tensors(inner, seen, f"{prefix}{name}.")


def found_state_dicts(value: object) -> dict[str, dict[str, ShapedTensor]]:
    """Return the mappings from names to tensors in what was loaded, by the keys that lead to each, joined by
    dots: those that have a matrix, or else any."""
    return dict(state_dicts(value, 2)) or dict(state_dicts(value, 0))


def state_dicts(
    value: object, axes: int, path: tuple[str, ...] = (), seen: set[int] | None = None
) -> Iterator[tuple[str, dict[str, ShapedTensor]]]:
    """Yield every mapping from names to tensors, one of which has as many `axes`, with the keys that lead to
    it."""
    seen = set() if seen is None else seen
    if len(path) > DEEPEST or id(value) in seen:
        return
    seen.add(id(value))
    if is_module(value):
        yield ".".join(path), dict(module_tensors(value, set()))
        return
    if isinstance(value, list | tuple) and not isinstance(value, ShapedTensor) and len(value) <= DEEPEST:
        value = {str(number): each for number, each in enumerate(value)}
    if not isinstance(value, Mapping):
        return
    named = {name: each for name, each in value.items() if isinstance(name, str)}
    tensors = {name: each for name, each in named.items() if isinstance(each, ShapedTensor)}
    # counters and single numbers are not a model
    if any(len(each.shape) >= axes for each in tensors.values()):
        yield ".".join(path), tensors
    for name, each in named.items():
        yield from state_dicts(each, axes, (*path, name), seen)


def stored_module(value: object, depth: int = 3) -> StoredModule | None:
    """Return the first module of PyTorch that was stored whole in what was loaded; None where there is
    none."""
    if is_module(value):
        return StoredModule(value)
    for each in value.values() if isinstance(value, Mapping) and depth else ():
        if (found := stored_module(each, depth - 1)) is not None:
            return found
    return None


def class_names_in(value: object, skip: re.Pattern[str] | None = None) -> Iterator[str]:
    """Yield the names of the classes in what was loaded, but those of containers.

    Args:
        skip: names of what is not looked into.
    """
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, StoredArray):
            yield "numpy.ndarray"
        if isinstance(each, Object) and not each.kind.startswith("collections."):
            yield str(each.kind)
        if isinstance(each, Mapping):
            waiting += [inner for name, inner in each.items() if not (skip and skip.search(str(name)))]
        elif isinstance(each, list | tuple) and not isinstance(each, StoredTensor):
            waiting += each
