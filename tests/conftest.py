"""What tests share: a quiet, repeatable PyTorch, a few images, and a browser."""

import gc
import os

# Before torch is imported, and for every process that a test starts: the tests share the cores by processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["HF_HUB_OFFLINE"] = "1"  # trainings ask the hub for an encoder, and take one of its cache
os.environ["HF_HUB_CACHE"] = os.devnull
os.environ["LC_ALL"] = "C.UTF-8"  # pages are in English unless a test says otherwise, wherever it runs

import importlib.util
import logging
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

import shards

# Most objects live until the tests end. With Python's 700 new ones before garbage is looked for, half of the
# time in which tests are collected was spent on looking.
gc.set_threshold(200_000, *gc.get_threshold()[1:])

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# PyTorch's checkpoints say two lines about each tensor, which pytest would keep for a test that fails.
logging.getLogger("c10d-NullHandler-dcp_logger").disabled = True

UNFIT: list[str] = []  # versions of torchvision whose operators were declared
LONGEST = {"test_demo.py", "test_readme.py", "test_examples.py", "test_dependencies.py", "test_types.py"}


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.default_generator.manual_seed(0)  # torch.manual_seed keeps the stack of its caller, for CUDA: 3 ms
    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _quick_baselines() -> Iterator[None]:
    """Runs, also those that a module shares, fit their SVM with one setting and mirror 200 images to see
    whether that helps; tests/evaluation/test_classical.py fits all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitreous.evaluation.classical.COSTS", (10.0,))
        patch.setattr("vitreous.evaluation.classical.GAMMAS", (2.0,))
        patch.setattr("vitreous.evaluation.classical.MOST_TRIED", 200)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor write the user's cache, nor one that another process clears."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITREOUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def quick_figures() -> Iterator[None]:
    """Charts of reports are made, but not drawn: that is most of the time of a short training, and
    tests/inspection and tests/end_to_end/test_demo.py draw those of every task."""
    from matplotlib.figure import Figure

    save = Figure.savefig

    def blank(figure: Any, target: Any, **options: Any) -> None:
        if options.get("format") == "svg":
            target.write('<svg xmlns="http://www.w3.org/2000/svg"></svg>')
        else:
            save(figure, target, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", blank)
        yield


@pytest.fixture
def hub_constants(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change what huggingface_hub has read from the environment, which it does when it is imported."""
    constants = pytest.importorskip("huggingface_hub.constants")

    def change(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setattr(constants, name, value)

    return change


@pytest.fixture
def in_hub_cache(tmp_path: Path, hub_constants: Callable[..., None]) -> Callable[..., str]:
    """Store a model as the hub's cache has it, in hub/; return its name for `load`."""

    def store(model: Any, name: str, format: str = "huggingface") -> str:
        import vitreous as vt

        commit, repository = "0" * 40, tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        vt.save(model, repository / "snapshots" / commit, format=format)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
        hub_constants(HF_HUB_CACHE=str(tmp_path / "hub"))
        return f"hf:{name}"

    return store


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """In the block that it begins, no file becomes larger than so many bytes, as on a disk that is full."""

    @contextmanager
    def full(most_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)

    return full


class TimedProducts(TorchDispatchMode):
    """A processor whose products of matrices in bf16 take `bf16` seconds, and in fp32 one."""

    def __init__(self) -> None:
        super().__init__()
        self.bf16, self.now = 1.0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.now += self.bf16 if args[0].dtype == torch.bfloat16 else 1.0
        return func(*args, **(kwargs or {}))

    def take(self, bf16: float) -> None:
        """Let the product be timed once more."""
        from vitreous.training.machine import time_of_bf16

        self.bf16 = bf16
        time_of_bf16.cache_clear()
        with self:
            time_of_bf16()


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Iterator[TimedProducts]:
    """What a product takes on this processor: `products.take(bf16=0.5)`."""
    from vitreous.training import machine

    timed = TimedProducts()
    monkeypatch.setattr(machine, "perf_counter", lambda: timed.now)
    yield timed
    machine.time_of_bf16.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with two classes of twelve images that differ in color."""
    where = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for shade, name in enumerate(("apples", "pears")):
        (where / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 80, (48, 64, 3), dtype=np.uint8)
            pixels[..., shade] += 150
            Image.fromarray(pixels).save(where / "photos" / name / f"{number}.jpg")
    return where


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window, driven by Playwright: the system's, or Playwright's own; or a skip that says
    what is missing.

    CHROMIUM is the path to another one.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright: make test-slow installs it")
    names = os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"
    found = next(filter(None, (shutil.which(name) for name in names if name)), None)
    with playwright.sync_playwright() as driver:
        if found is None and not Path(found := driver.chromium.executable_path).exists():
            pytest.skip("no browser: python -m playwright install chromium, or CHROMIUM=/path/to/it")
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=1_000_000)
        yield opened
        opened.close()


@pytest.fixture(scope="session", autouse=True)
def _torchvision_operators() -> Iterator[None]:
    """The operators that torchvision asks for, where its compiled half does not fit PyTorch. Without them
    timm and transformers could not be imported; the summary says so.

    `make .venv/slow` installs a pair that fits. Where the index of builds for CPUs cannot be reached, the
    package index has a torchvision for CUDA alone.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        yield
        return
    compiled = [*Path(found.submodule_search_locations[0]).glob("_C*.so")]
    try:
        torch.ops.load_library(str(compiled[0]))
    except (OSError, IndexError):
        UNFIT.append(version("torchvision"))
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", help="a share of the slow tests, or documents: see shards.py")
    parser.addoption("--measure", action="store_true", help="keep the seconds of each file for the shards")


def pytest_collection_finish() -> None:
    gc.freeze()  # the tests themselves, and all that was imported for them


def pytest_unconfigure() -> None:
    gc.freeze()  # the process ends: what is left need not be walked again


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("measure"):
        reports = [report for kind in terminalreporter.stats.values() for report in kind]
        shards.keep(report for report in reports if isinstance(report, pytest.TestReport))
    for found in UNFIT:
        terminalreporter.write_line(
            f"torchvision {found} is of another build than PyTorch {torch.__version__}: its operators were "
            "declared by name alone. `make .venv/slow` installs a pair that fits where it reaches TORCH_INDEX"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs a browser runs with `make test-slow`; what takes longest begins first.

    One worker then has the longest, and the other takes from it what is left.
    """
    items.sort(key=lambda item: item.path.name not in LONGEST)
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    if shard := config.getoption("shard"):
        shards.select(shard, config, items)
