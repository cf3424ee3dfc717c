"""Whether the tests notice a mistake: single changes of core files, and the fast tests that run against each.

    python benchmarks/mutants.py --out benchmarks/results/mutants.json
    python benchmarks/mutants.py --only layers/attention.py   # one file
    python benchmarks/mutants.py --again --out FILE           # those that FILE does not have as noticed
    python benchmarks/mutants.py --green                      # where the tests pass without a change
    python benchmarks/mutants.py --list                       # the changes alone

A change is made in a copy of the package: another operator, a condition turned around, a number that is
larger by one, a call left out, a random key without its last part. The changes of a file are drawn by their
hash, so that those which are easily seen are not preferred, and a function that moves keeps its own; REPORTED
has mistakes of other kinds. For each the near tests of the file run first, in a fork of a process that has
imported PyTorch; where none of them fails, all fast tests of the package. EQUIVALENT has those that change
nothing that can be seen, and why; the score leaves them out. Hours of one core: a run that was ended goes on
with --again, and each row says of which commit it is.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import copy
import hashlib
import importlib
import inspect
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from record import ROOT, present_commit, write_results

COUNT = 150
# Seconds of a processor that one run of tests may take, several times what the slowest package needs. A
# change with which they take more counts as noticed: it hangs. Time of the clock would count a busy machine.
SLOWEST = 400


class Tested(NamedTuple):
    """Tests that are near to a file, and those of its whole package; below tests/."""

    near: tuple[str, ...]
    package: tuple[str, ...]


LAYERS = ("layers", "models")
CORE = {
    "layers/attention.py": Tested(("layers/test_attention.py", "layers/test_parts.py"), LAYERS),
    "layers/block.py": Tested(("layers/test_parts.py", "models/test_vit.py"), LAYERS),
    "layers/embedding.py": Tested(("layers/test_parts.py", "layers/test_convolution_stem.py"), LAYERS),
    "layers/initialization.py": Tested(("models/test_initialization.py",), LAYERS),
    "layers/pooling.py": Tested(("layers/test_parts.py",), LAYERS),
    "layers/rotary.py": Tested(("layers/test_parts.py",), LAYERS),
    "training/step.py": Tested(("training/test_engine.py", "training/test_late.py"), ("training",)),
    "training/learner.py": Tested(
        ("training/test_schedules.py", "training/test_optimizers.py", "training/test_engine.py"),
        ("training",),
    ),
    "training/optimizers.py": Tested(("training/test_optimizers.py",), ("training",)),
    "training/objectives.py": Tested(("training/test_engine.py",), ("training",)),
    "data/held_out.py": Tested(("data/test_splitting.py", "data/test_split.py"), ("data",)),
    "data/sampling.py": Tested(("data/test_sampling.py",), ("data",)),
    "data/transforms.py": Tested(("data/test_augmentation.py", "data/test_resampling.py"), ("data",)),
    "data/batch_augmentation.py": Tested(("data/test_augmentation.py",), ("data",)),
    "evaluation/scores.py": Tested(("evaluation/test_scores.py",), ("evaluation",)),
    "evaluation/calibration.py": Tested(("evaluation/test_calibration.py",), ("evaluation",)),
    "evaluation/comparison.py": Tested(("evaluation/test_comparison.py",), ("evaluation",)),
    "models/preprocessing.py": Tested(("checkpoints/test_preprocessing.py",), ("models", "checkpoints")),
}

# Mistakes that no test noticed when they were first made: a file, what stands there, and what would.
REPORTED = (
    ("layers/attention.py", "return bias + mask", "return bias - mask"),
    ("training/step.py", "len(part[0]) / len(batch[0])", "1 / number"),
    ("training/step.py", "optimizer.clip_norm, norm)", "optimizer.clip_norm, norm * 0 + 1)"),
    ("training/step.py", "key = (self.world.rank, self.learner.step)", "key = (self.world.rank, 0)"),
    ("training/step.py", '"objective", *key)', '"objective", self.world.rank)'),
    ("training/learner.py", "done = (step - before) / max(total - before, 1)", "done = step / total"),
    ("training/optimizers.py", "max(matrices[0].shape) ** 0.5", "min(matrices[0].shape) ** 0.5"),
    ("data/held_out.py", 'purpose = f"{part} {config.split_seed}"', 'purpose = f"{part}"'),
    ("data/held_out.py", 'purpose = f"{part} {config.split_seed}"', 'purpose = f"{config.split_seed}"'),
    ("data/held_out.py", "return min(low, images - 1), min(", "return images - 1, max("),
)

# Changes after which every result is the same, by their name, and why.
EQUIVALENT: Mapping[str, str] = {
    "evaluation/comparison.py, chunks: size = max(AT_ONCE // max(width, 1), 1) "
    "-> size = max(AT_ONCE * max(width, 1), 1)": "only the memory of the resamples is another",
    "evaluation/comparison.py, compare_runs: rows = np.arange(len(places[0])) "
    "-> rows = np.arange(len(places[1]))": "what all runs have held out has one number in each",
    "training/step.py, read_later: copy = torch.empty((), dtype=flag.dtype, pin_memory=True) "
    "-> copy = torch.empty((), dtype=flag.dtype, pin_memory=False)": "a GPU waits for the copy",
    "training/optimizers.py, orthogonalized: tall = x.shape[0] > x.shape[1] "
    "-> tall = x.shape[1] > x.shape[1]": ("the same matrix, from larger products"),
    "training/objectives.py, RareClassLoss.__init__: self.shift = (known / known.sum()).log() if config.loss "
    "== 'logit-adjusted' else None -> self.shift = (known / known.mean()).log() if config.loss == "
    "'logit-adjusted' else None": "a softmax does not change with a number that is added to all logits",
    "models/preprocessing.py, normalize: if pixels.device.type == 'cpu' and pixels.ndim == 4: "
    "-> if pixels.device.type == 'cpu' and pixels.ndim != 4:": "the same numbers, more slowly",
    "data/batch_augmentation.py, bicubic: return F.interpolate(torch.eye(4)[None, ..., None], (size, 1), "
    "mode='bicubic')[0, ..., 0].T.to(device) -> return F.interpolate(torch.eye(4)[None, ..., None], (size, "
    "2), mode='bicubic')[0, ..., 0].T.to(device)": "two columns that are the same, of which one is read",
    "data/batch_augmentation.py, affine: grid = grid + bending(points, height, width) "
    "-> grid = grid - bending(points, height, width)": "offsets have either sign with the same probability",
    "data/batch_augmentation.py, erase: if images.device.type == 'cpu': -> if images.device.type != 'cpu':": (
        "the noise of a GPU: other draws of the same distribution, more slowly"
    ),
    "models/preprocessing.py, NativePreprocessing.size_of: low, high = (STEP / 10, 100.0) "
    "-> low, high = (STEP / 10, 101.0)": "the bisection begins elsewhere, and ends at the same size",
}

OPERATORS: Mapping[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "any": "all", "floor": "ceil", "argmax": "argmin", "sin": "cos", "mean": "sum"}
NAMES |= {other: name for name, other in NAMES.items()}
KEYED = {
    "torch_generator",
    "torch_seed",
    "numpy_generator",
    "hashed",
}  # the last argument is a part of the key


class Mutant(NamedTuple):
    """A single change of a file."""

    file: str  # below src/vitreous/
    function: str
    line: int
    before: str
    after: str
    text: Callable[[], str]  # makes the whole file after it, which takes long for one change of thousands

    @property
    def name(self) -> str:
        return f"{self.file}, {self.function}: {self.before} -> {self.after}"


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""
    new: Any = copy.copy(node)
    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in OPERATORS:
            new.op = OPERATORS[type(node.op)]()
            yield new
        case ast.Compare() if len(node.ops) == 1:
            new.ops = [OPERATORS[type(node.ops[0])]()]
            yield new
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            pass  # -2 and 2 are often one axis; the number in it is changed
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield new.operand
        case ast.If(test=ast.UnaryOp(op=ast.Not())) | ast.IfExp(test=ast.UnaryOp(op=ast.Not())):
            pass  # the operand alone is that change
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.If() | ast.IfExp():
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield new
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="__init__"))):
            pass  # no module works without it
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Call():
            yield from other_calls(node)


def other_calls(call: ast.Call) -> Iterator[ast.AST]:
    """Yield a call of the opposite function, and one of a generator whose key lacks its last part."""
    new: Any = copy.deepcopy(call)
    match call.func:
        case ast.Name(id=name) if name in NAMES:
            new.func.id = NAMES[name]
            yield new
        case ast.Attribute(attr=name) if name in NAMES:
            new.func.attr = NAMES[name]
            yield new
        case ast.Name(id=name) if name in KEYED and len(call.args) > 1:
            yield ast.Call(new.func, new.args[:-1], new.keywords)


NOT_READ = (
    ast.Raise,
    ast.Assert,
    ast.JoinedStr,
    ast.arguments,
)  # sentences and types are not what a mutant is in


def places(node: ast.AST, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to every node of a function's body that computes."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for number, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not isinstance(child, NOT_READ):
                here = (*way, (field, number if isinstance(value, list) else None))
                yield here
                yield from places(child, here)


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield f"{name}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{name}{node.name}.")


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yield every single change of a file."""
    tree = ast.parse(text)
    for function, body in functions(tree):
        for way in places(body):
            node, statement = at(body, way), statement_of(body, way)
            for new in replacements(node):
                before, line = shown(at(body, statement)), at(body, statement).lineno
                put(body, way, new)
                after = shown(at(body, statement))
                put(body, way, node)
                yield Mutant(file, function, line, before, after, partial(text_with, tree, body, way, new))


def text_with(tree: ast.AST, function: ast.AST, way: Sequence[tuple[str, int | None]], new: ast.AST) -> str:
    """Return the text of a file with another node at the end of a way in a function of it."""
    node = at(function, way)
    put(function, way, new)
    text = ast.unparse(tree)
    put(function, way, node)
    return text


def at(node: Any, way: Sequence[tuple[str, int | None]]) -> Any:
    """Return the node at the end of a way."""
    for field, number in way:
        node = getattr(node, field) if number is None else getattr(node, field)[number]
    return node


def put(node: ast.AST, way: Sequence[tuple[str, int | None]], new: ast.AST) -> None:
    """Put a node at the end of a way."""
    *parents, (field, number) = way
    if number is None:
        setattr(at(node, parents), field, new)
    else:
        getattr(at(node, parents), field)[number] = new


def statement_of(node: ast.AST, way: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the beginning of a way that ends at the statement which the node is in."""
    return next(way[:end] for end in range(len(way), 0, -1) if isinstance(at(node, way[:end]), ast.stmt))


def shown(node: ast.AST) -> str:
    """The first line of a node."""
    return ast.unparse(node).splitlines()[0]


def reported() -> Iterator[Mutant]:
    """Yield the mistakes of REPORTED."""
    for file, before, after in REPORTED:
        text = (ROOT / "src" / "vitreous" / file).read_text(encoding="utf-8")
        if text.count(before) != 1:
            sys.exit(f"{file} has {text.count(before)} times {before}: bring REPORTED up to date")
        line = text[: text.index(before)].count("\n") + 1
        yield Mutant(file, "reported", line, before, after, partial(text.replace, before, after))


def drawn(count: int) -> list[Mutant]:
    """Return `count` changes or a few more, as many of each file: those of which the hash of the name is
    lowest."""
    found = []
    for file in CORE:
        text = (ROOT / "src" / "vitreous" / file).read_text(encoding="utf-8")
        every = {mutant.name: mutant for mutant in mutants_of(file, text)}
        ordered = sorted(every.values(), key=lambda each: hashlib.blake2b(each.name.encode()).digest())
        found += ordered[: -(-count // len(CORE))]
    return found


class Workplace:
    """A copy of the package in which one file after the other is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "src"
        shutil.copytree(ROOT / "src", self.source)
        compileall.compile_dir(self.source, quiet=1)  # a fork writes none, so that no change stays

    def outcome(self, tests: Sequence[str], names: Sequence[str] = ()) -> tuple[bool, str]:
        """Run fast tests against the copy until one fails, in a fork, those that name one of `names` first;
        return whether one did, and which."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CPU, (SLOWEST, SLOWEST))
            os._exit(self.run(tests, names, writer))
        os.close(writer)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests have started
        with os.fdopen(reader, encoding="utf-8") as pipe:
            failed = pipe.read()
        if code in (-signal.SIGKILL, -signal.SIGXCPU):
            failed = f"does not end within {SLOWEST} seconds of a processor"
        return code != 0, failed or ("" if code == 0 else f"pytest ends with {code}")

    def run(self, tests: Sequence[str], names: Sequence[str], writer: int) -> int:
        """In the child: run tests and write the name of the first that fails."""
        import pytest

        class First:
            def pytest_collection_modifyitems(self, items: list[Any]) -> None:
                texts = {item: inspect.getsource(item.function) for item in items}
                items.sort(key=lambda item: not any(name in texts[item] for name in names))

            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    os.write(writer, report.nodeid.encode())

            def pytest_collectreport(self, report: Any) -> None:
                if report.failed:
                    os.write(writer, f"{report.nodeid} cannot be imported".encode())

        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os.chdir(self.folder)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self.source))
        os.environ |= {"PYTHONPATH": str(self.source), "PYTHONDONTWRITEBYTECODE": "1"}
        found = [str(ROOT / "tests" / name) for name in tests]
        options = [
            "-x",
            "-q",
            "-m",
            "not slow",
            "--hypothesis-seed=0",
            "--timeout=600",
            "-p",
            "no:xdist",
            f"--rootdir={ROOT}",
        ]
        return int(pytest.main([*options, *found], plugins=[First()]))

    def tried(self, mutant: Mutant) -> dict[str, Any]:
        """Return the row of a change: which test noticed it, if one did."""
        path = self.source / "vitreous" / mutant.file
        before, began = path.read_bytes(), time.monotonic()
        path.write_text(mutant.text(), encoding="utf-8")
        tested, noticed, by = CORE[mutant.file], False, ""
        for tests in (tested.near, tested.package):
            noticed, by = self.outcome(tests, mutant.function.split("."))
            if noticed:
                break
        path.write_bytes(before)
        facts = {name: getattr(mutant, name) for name in ("file", "function", "line", "before", "after")}
        result = "killed" if noticed else "equivalent" if mutant.name in EQUIVALENT else "survived"
        seconds = round(time.monotonic() - began, 1)
        return {**facts, "result": result, "by": by, "seconds": seconds, "commit": present_commit()}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = {
        result: sum(row["result"] == result for row in rows)
        for result in ("killed", "survived", "equivalent")
    }
    different = counts["killed"] + counts["survived"]
    return {"changes": len(rows), **counts, "score": counts["killed"] / max(different, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CORE, default=list(CORE), metavar="FILE")
    parser.add_argument("--count", type=int, default=COUNT, help="changes of all files together")
    parser.add_argument("--every", type=int, default=1, help="one of so many changes: a sample")
    parser.add_argument("--again", action="store_true", help="leave out what --out has as killed")
    parser.add_argument(
        "--green", action="store_true", help="do not run the near tests without a change first"
    )
    parser.add_argument("--list", action="store_true", help="print the changes, and run nothing")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    given = parser.parse_args()

    chosen = [mutant for mutant in (*reported(), *drawn(given.count)) if mutant.file in given.only]
    chosen = chosen[:: given.every]
    if given.list:
        for mutant in chosen:
            print(mutant.name)
        return
    for module in (
        "torch",
        "torch._dynamo",
        "scipy.stats",
        "sklearn.svm",
        "matplotlib.figure",
        "hypothesis",
        "pytest",
    ):
        importlib.import_module(module)
    rows = known_rows(given.out)
    if given.again:
        chosen = [mutant for mutant in chosen if rows.get(mutant.name, {}).get("result") != "killed"]
    with tempfile.TemporaryDirectory() as folder:
        workplace = Workplace(Path(folder))
        for file in () if given.green else dict.fromkeys(mutant.file for mutant in chosen):
            failed, by = workplace.outcome(CORE[file].near)
            if failed:
                sys.exit(f"{by} without a change: nothing can be said of {file}")
        for mutant in chosen:
            row = rows[mutant.name] = workplace.tried(mutant)
            print(row["result"], mutant.name, row["by"], flush=True)
            every = list(rows.values())
            write_results({**summary(every), "rows": every}, given.out, machine="one thread", shown=False)
    print(summary(list(rows.values())))


def known_rows(out: Path | None) -> dict[str, dict[str, Any]]:
    """Return the rows of a file of results by the names of their changes."""
    if not out or not out.exists():
        return {}
    found = {}
    for row in json.loads(out.read_text(encoding="utf-8"))["rows"]:
        found["{file}, {function}: {before} -> {after}".format(**row)] = row
    return found


if __name__ == "__main__":
    main()
