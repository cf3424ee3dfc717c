"""Every night: odd command lines, odd calls, faulty data and damaged checkpoints. Whatever is given, there is
an answer or one sentence: no traceback, no hang, nothing overwritten, and memory follows what was given.

VITREOUS_FUZZ is the seed, VITREOUS_FUZZ_PART the part of the cases that are tried.
"""

import io
import os
import random
import resource
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("VITREOUS_FUZZ", "0"))
PART = float(os.environ.get("VITREOUS_FUZZ_PART", "1"))
LINES, CALLS, FAULTS, CHECKPOINTS = (round(PART * count) for count in (900, 300, 150, 900))
MEMORY = 500  # MB beyond three times the file
SECONDS = 60  # of the processor, for one command
BLOCKED = 10 * SECONDS  # by the clock


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def photos(root, count=6):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with images, a model, a table, and a file that is precious."""
    root = tmp_path_factory.mktemp("fuzz")
    photos(root / "photos")
    model = vt.create("ViT-Ti/16", num_classes=2, image_size=32, depth=1)
    vt.save(model, root / "model")
    vt.save(model, root / "m.pth", format="timm")
    rows = [f"photos/{name}/{index}.png,{name}" for name in ("cat", "dog") for index in range(6)]
    (root / "list.csv").write_text("\n".join(["path,label", *rows]))
    (root / "precious").mkdir()
    (root / "precious" / "file.txt").write_text("kept")
    (root / "precious.onnx").write_text("kept")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe.png")
    return root


COMMANDS = (
    *("data check", "data pack", "doctor", "describe", "predict", "embed", "convert", "export", "inspect"),
    *("evaluate", "calibrate", "list-models", "recipe", "cache", "compare", "train", "probe"),
)
SUBJECTS = (
    *("photos", "model", "m.pth", "list.csv", "precious", "precious/file.txt", "empty", "pipe.png", ".", "/"),
    *(
        "",
        " ",
        "~nosuchuser/x",
        "hf:",
        "hf:../..",
        "digits",
        "ViT-Ti/16",
        "ViT-Ti/0",
        "no such",
        "\0",
        "\udcff",
    ),
    *("x" * 5000, "photos/*.png", "photos/cat/0.png", "s-{000..99999999}.tar", "s3://", "file:///etc/passwd"),
    *("가나다", "--", "-", "/dev/null", "/dev/zero", "precious.onnx", "synthetic:0@0", "synthetic:9e9@1"),
)
OPTIONS = (
    *(
        "--json",
        "--quiet",
        "--help",
        "--batch-size",
        "--image-size",
        "--out",
        "--device",
        "--set",
    ),
    *("--top", "--threshold", "--workers", "--seed", "--precision", "--format", "--config", "--minutes"),
    *("--epochs", "--model", "--init", "--report", "--quarantine", "--nonsense", "--exclude", "--language"),
)
VALUES = (
    *("0", "-1", "1", "2", "1.5", "nan", "inf", "true", "1e9", "9" * 30, "", "x", "auto", "cpu", "cuda:99"),
    *("precious", "precious/file.txt", "precious.onnx", "model.depth=1e9", "a.b=c", "=", "[" * 3000, "½"),
)


def odd_line(rng):
    words = rng.choice(COMMANDS).split()
    words += [rng.choice(SUBJECTS) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))]
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        words.append(rng.choice(OPTIONS))
        if rng.random() < 0.7:
            words.append(rng.choice(VALUES))
    if words[0] == "train":  # what would learn for minutes is not wanted here
        words += ["--epochs", "0"]
    if words[0] == "probe":  # nor are features of large images
        words += ["--image-size", "16"]
    return words


@pytest.mark.timeout(7200)
def test_odd_command_lines(workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("VITREOUS_CACHE", str(workplace / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rng, before = random.Random(SEED), contents(workplace)
    for number in range(LINES):
        words = odd_line(rng)
        with limited(SECONDS, words):
            try:
                code = run(words)
            except SystemExit as ended:
                code = ended.code or 0
        found = capsys.readouterr()
        assert code in (0, 1, 2), (number, words, code)
        assert "Traceback" not in found.err, (number, words)
        assert "bug in vitreous" not in found.err, (number, words, found.err[-400:])
        if code == 2 and "--quiet" not in words:
            assert "vitreous: " in found.err, (number, words, found.err[-400:])
        assert contents(workplace).items() >= before.items(), (number, words)


def contents(root):
    """Every file that is there before, with its content."""
    kept = ("precious", "precious.onnx", "photos", "model", "m.pth", "list.csv")
    files = [path for name in kept for path in (root / name).rglob("*")] + [root / name for name in kept]
    return {str(path): path.read_bytes() for path in files if path.is_file()}


class limited:
    """Fail what takes too long, with its words."""

    def __init__(self, seconds, words):
        self.seconds, self.words = seconds, words

    def __enter__(self):
        import signal

        def stop(*_):
            raise AssertionError(f"it hangs: {self.words}")

        self.former = [signal.signal(each, stop) for each in (signal.SIGALRM, signal.SIGPROF)]
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        signal.alarm(BLOCKED)

    def __exit__(self, *_):
        import signal

        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, former in zip((signal.SIGALRM, signal.SIGPROF), self.former, strict=True):
            signal.signal(number, former)


THINGS = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        float("nan"),
        "",
        "x",
        b"",
        b"x",
        (),
        [],
        {},
        object(),
        10**30,
        "model",
        "photos",
    ),
    *(
        np.zeros(0),
        np.zeros((0, 4, 3)),
        np.zeros((4, 4)),
        np.zeros((4, 4, 4, 4, 4)),
        np.zeros((4, 4), complex),
    ),
    *(np.full((4, 4), np.nan), np.array([object()]), torch.zeros(0), torch.zeros(3, 4, 4, dtype=torch.bool)),
    *(torch.zeros(2, 3, 8, 8, device="meta"), Image.new("RGB", (1, 1)), io.BytesIO(b"x"), io.StringIO("x")),
    *(torch.nn.Linear(2, 2), torch.nn.Sequential(), [None], ["photos", np.zeros((4, 4))], iter(()), range(3)),
)
FUNCTIONS = (
    "predict",
    "embed",
    "evaluate",
    "describe",
    "load",
    "save",
    "check_data",
    "create",
    "convert",
    "export",
)
NAMES = (
    "top",
    "batch_size",
    "image_size",
    "device",
    "precision",
    "out",
    "format",
    "threshold",
    "epoch",
    "settings",
)


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_odd_calls(workplace, monkeypatch, tmp_path):
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rng, before, model = random.Random(SEED), contents(workplace), vt.load("model")
    raw = []
    for number in range(CALLS):
        function = rng.choice(FUNCTIONS)
        given = [rng.choice((*THINGS, model)) for _ in range(rng.choice((1, 1, 2, 2, 2)))]
        options = {rng.choice(NAMES): rng.choice(THINGS[:20]) for _ in range(rng.choice((0, 0, 1)))}
        with limited(SECONDS, (function, str(given)[:200], options)):
            try:
                getattr(vt, function)(*given, **options)
            except vt.InputError:
                continue
            except TypeError as error:
                if "positional argument" in str(error):
                    continue
                raw.append((number, function, str(given)[:100], options, repr(error)[:200]))
            except Exception as error:
                raw.append((number, function, str(given)[:100], options, repr(error)[:200]))
    assert contents(workplace).items() >= before.items()
    assert not raw, "\n".join(map(str, raw))


def damage(content, rng):
    """Bytes with a few of them changed, or cut, or with a piece repeated."""
    data = bytearray(content)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        place = rng.randrange(len(data))
        data[place] = rng.randrange(256)
    if rng.random() < 0.3:
        data = data[: rng.randrange(len(data))]
    if rng.random() < 0.1:
        place = rng.randrange(len(data) + 1)
        data = data[:place] + data[: rng.randrange(64)] + data[place:]
    return bytes(data)


def fault(folder, rng):
    """Put something faulty into a folder of images, or beside it."""
    kind = rng.choice(
        ("image", "image", "image", "link", "pipe", "name", "csv", "tar", "npy", "ppm", "empty")
    )
    place = folder / rng.choice(("cat", "dog"))
    if kind == "image":
        file = place / f"{rng.randrange(6)}.png"
        file.write_bytes(damage(file.read_bytes(), rng))
    elif kind == "link":
        (place / "x.png").symlink_to(rng.choice(("/dev/zero", "x.png", "nowhere", "/", "..")))
    elif kind == "pipe":
        os.mkfifo(place / "x.jpg")
    elif kind == "name":
        name = rng.choice(
            ("\n.png", "'\".png", "\udcff.png", "é.png", "e\u0301.png", "x" * 250 + ".png", "$(x).png")
        )
        shutil.copy(place / "0.png", place / name)
    elif kind == "npy":
        (place / "x.npy").write_bytes(
            damage(b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'shape': (9999999, 9999)}", rng)
        )
    elif kind == "ppm":
        size = rng.choice((b"0 0", b"-1 5", b"9" * 5000 + b" 1", b"99999 99999"))
        (place / "x.ppm").write_bytes(b"P6\n" + size + b"\n255\n")
    elif kind == "empty":
        (place / "x.png").write_bytes(b"")
    elif kind == "csv":
        rows = "\n".join(["path,label", *(f"{path},{path.parent.name}" for path in folder.glob("*/*.png"))])
        (folder.parent / "l.csv").write_bytes(damage(rows.encode(), rng))
        return folder.parent / "l.csv"
    else:
        with tarfile.open(folder.parent / "s.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for path in folder.glob("*/*.png"):
                archive.add(path, f"{path.parent.name}{path.stem}.png")
                label = tarfile.TarInfo(f"{path.parent.name}{path.stem}.txt")
                label.size = 3
                archive.addfile(label, io.BytesIO(path.parent.name.encode()))
        content = bytearray((folder.parent / "s.tar").read_bytes())
        if rng.random() < 0.5:
            content[124:136] = rng.choice(
                (b"-0000001000\0", b"-0000002000\0", b"7" * 12, b"\x80" + b"\xff" * 11)
            )
            content[148:156] = b" " * 8
            content[148:156] = b"%06o\0 " % sum(content[:512])
        (folder.parent / "s.tar").write_bytes(damage(bytes(content), rng))
        return folder.parent / "s.tar"
    return folder


@pytest.mark.timeout(7200)
def test_faulty_data(workplace, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    rng = random.Random(SEED)
    for number in range(FAULTS):
        here = tmp_path / str(number)
        photos(here / "data")
        source = fault(here / "data", rng)
        before = peak_megabytes()
        for words in (
            ["data", "check", str(source)],
            ["predict", str(workplace / "model"), str(source), "--out", str(here / "answers")],
        ):
            with limited(SECONDS, (number, words, source)):
                code = run(words)
            found = capsys.readouterr()
            assert code in (0, 1, 2), (number, words)
            assert "Traceback" not in found.err
            assert "bug in vitreous" not in found.err, (number, words, found.err[-400:])
        assert peak_megabytes() - before < MEMORY, (number, source)
        shutil.rmtree(here)


LOAD = """
import resource, sys, vitreous as vt
vt.load("{model}")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        vt.load(path, heads=3)
    except vt.InputError as error:
        assert str(error)
    except Exception as error:
        print("RAW", path, repr(error)[:300])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if grown > {limit}:
        print("MEMORY", path, grown)
        break
"""


@pytest.mark.timeout(7200)
def test_damaged_checkpoints(workplace, tmp_path):
    """As many of each of seven files, loaded in a process of their own, whose memory is watched."""
    model, rng = vt.load(workplace / "model"), random.Random(SEED)
    wanted = {"timm": "m.pth", "huggingface": "hf", "torchvision": "v.pth"}
    files = [workplace / "model" / "model.safetensors", workplace / "model" / "config.json"]
    for format, name in wanted.items():
        path = tmp_path / name
        vt.save(model, path, format=format)
        files += [path] if path.is_file() else [each for each in path.iterdir() if each.suffix != ".md"]
    assert len(files) == 7
    for place, file in enumerate(files):
        damaged = []
        for number in range(CHECKPOINTS // len(files)):
            target = tmp_path / f"{place}-{number}"
            if file.parent != tmp_path:
                shutil.copytree(file.parent, target)
                (target / file.name).write_bytes(damage(file.read_bytes(), rng))
            else:
                target = target.with_suffix(file.suffix)
                target.write_bytes(damage(file.read_bytes(), rng))
            damaged.append(str(target))
        limit = MEMORY + 3 * file.stat().st_size / 2**20
        program = LOAD.format(model=workplace / "model", limit=limit)
        found = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, *damaged],
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert found.returncode == 0, found.stderr[-2000:]
        assert "RAW" not in found.stdout, found.stdout[-2000:]
        assert "MEMORY" not in found.stdout, found.stdout[-2000:]
        for each in damaged:
            shutil.rmtree(each) if Path(each).is_dir() else Path(each).unlink()
