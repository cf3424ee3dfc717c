"""What serving costs: `vitreous serve`, with and without batches, beside calling the model in a loop.

    python benchmarks/serving.py --out benchmarks/results/serving.json

Three ways to the same answers, in one run on one machine: images decoded and classified one by one in this
process; a server that computes each image alone (--max-batch 1); a server that joins what arrives together.
Each client sends its next image when it has the answer to its last; the clients share the machine with the
servers. The two servers take turns, slice by slice, so that a machine that slows down slows both.

Two models: ViT-Ti/16 on photographs of 500x375 pixels (JPEG), and a model of the size that the digits need,
on their 8x8 pixels (PNG).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image

import vitreous as vt
from vitreous.deployment.serving.classifying import Classifier, Top
from vitreous.deployment.serving.endpoints import Question

CLIENTS = (1, 8, 32)
WAYS = {"unbatched": ["--max-batch", "1", "--max-wait", "0"], "batched": []}


def photograph() -> bytes:
    """A JPEG as large as a photograph from the web: smooth noise, so that it compresses like one."""
    noise = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def digit() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def digits_model() -> vt.ViT:
    """As large as the recipe of the digits makes it."""
    config = vt.ViTConfig(
        image_size=8, channels=1, patch_size=2, width=64, depth=4, heads=4, mlp_dim=128, num_classes=10
    )
    return vt.ViT(config, preprocessing=vt.Preprocessing(size=(8, 8), channels=1, mean=(0.3,), std=(0.4,)))


def models(folder: Path) -> dict[str, tuple[Path, bytes]]:
    """Each model's checkpoint, with fresh weights, and the image that it is asked about."""
    torch.manual_seed(0)
    made = {
        "ViT-Ti/16": (vt.create("ViT-Ti/16"), photograph()),
        "digits": (digits_model(), digit()),
    }
    for name, (model, _) in made.items():
        vt.save(model, folder / name.replace("/", "-"))
    return {name: (folder / name.replace("/", "-"), data) for name, (_, data) in made.items()}


def loop(path: Path, data: bytes, seconds: float) -> dict[str, float]:
    """Decode and classify, again and again, in this process."""
    served = Classifier(vt.load(path), torch.device("cpu"), most_pixels=10**9)
    question = lambda: served.predict([Question("x", served.decode(data, "x"), Top())])  # noqa: E731
    question()  # warm
    latencies = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        question()
        latencies.append(time.perf_counter() - start)
    return summary(latencies, time.perf_counter() - began)


async def ask(url: str, data: bytes, clients: int, seconds: float) -> tuple[list[float], float]:
    """The latencies of as many clients as asked for, and the seconds that all took. Bare connections: a
    library's client would take as much of the machine as a small model."""
    latencies: list[float] = []
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /v1/predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n"
    request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    began = time.perf_counter()

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            latencies.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies, time.perf_counter() - began


def summary(latencies: list[float], seconds: float) -> dict[str, float]:
    return {
        "images_per_second": round(len(latencies) / seconds, 1),
        "p50_ms": round(1000 * float(np.percentile(latencies, 50)), 1),
        "p95_ms": round(1000 * float(np.percentile(latencies, 95)), 1),
        "requests": len(latencies),
    }


def start(stack: ExitStack, path: Path, options: list[str]) -> str:
    """A server's address; it ends with the context."""
    command = [sys.executable, "-m", "vitreous", "serve", str(path), "--port", "0", "--json", *options]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.terminate)
    assert process.stdout
    return str(json.loads(process.stdout.readline())["url"])


def computed(url: str) -> np.ndarray:
    """(images, batches) that a server has computed so far."""
    lines = [line for line in httpx.get(url + "/metrics").text.splitlines() if not line.startswith("#")]
    found = {line.split("{")[0]: float(line.split()[-1]) for line in lines if "batch_size" in line}
    return np.array([found["vitreous_batch_size_sum"], found["vitreous_batch_size_count"]])


def measure(name: str, path: Path, data: bytes, *, seconds: float, slices: int) -> list[dict[str, Any]]:
    """All rows of one model."""
    rows = [{"model": name, "way": "loop in one process", "clients": 1, **loop(path, data, seconds)}]
    with ExitStack() as stack:
        urls = {way: start(stack, path, options) for way, options in WAYS.items()}
        for url in urls.values():
            asyncio.run(ask(url, data, 2, 0.5))  # warm
        for clients in CLIENTS:
            found: dict[str, tuple[list[float], float]] = {way: ([], 0.0) for way in urls}
            before = computed(urls["batched"])
            for turn in range(slices):
                for way in list(urls)[:: 1 if turn % 2 else -1]:
                    latencies, took = asyncio.run(ask(urls[way], data, clients, seconds / slices))
                    found[way] = (found[way][0] + latencies, found[way][1] + took)
            images, batches = computed(urls["batched"]) - before
            for way in urls:
                extra = {"mean_batch": round(images / batches, 1)} if way == "batched" else {}
                rows.append({"model": name, "way": way, "clients": clients, **summary(*found[way]), **extra})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row")
    parser.add_argument("--slices", type=int, default=2, help="that a row's time is cut into")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (path, data) in models(Path(folder)).items():
            rows += measure(name, path, data, seconds=options.seconds, slices=options.slices)
    results = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, shared by clients and servers",
        "versions": {"torch": torch.__version__, "vitreous": vt.__version__},
        "rows": rows,
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
