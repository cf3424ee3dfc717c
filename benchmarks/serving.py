"""What serving costs: `vitreous serve`, with and without batches, beside calling the model in a loop.

    python benchmarks/serving.py --out benchmarks/results/serving.json

Three ways to the same answers, in one run on one machine: images decoded and classified one by one in this
process; a server that computes each image alone (--max-batch 1); a server that joins what arrives together.
Each client sends its next image when it has the answer to its last; the clients share the machine with the
servers. The two servers take turns, slice by slice, so that a machine that slows down slows both.

Then what operators ask: throughput at saturation beside the engine alone (the same decoding threads and
batches without HTTP), latency at 60% of it beside that of a single request, memory over 10,000 requests,
and strangers: hostile requests, silent connections, slow senders, large images, too few files; meanwhile
another client's small image. `--only strangers` measures these alone, and keeps the other rows of --out.

Two models: ViT-Ti/16 on photographs of 500x375 pixels (JPEG), and a model of the size that the digits need,
on their 8x8 pixels (PNG).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image
from record import write_results

import vitreous as vt
from vitreous.addons.serving.models import Classifier, Question, Top

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


def classifier(path: Path) -> Classifier:
    """A model as the server asks it."""
    return Classifier(vt.load(path), torch.device("cpu"), precision="fp32", most_pixels=10**9)


def decoded(served: Classifier, data: bytes) -> torch.Tensor:
    return served.prepare(data, "x")[0]


def loop(path: Path, data: bytes, seconds: float) -> dict[str, float]:
    """Decode and classify, again and again, in this process."""
    served = classifier(path)

    def question() -> None:
        served.predict([Question("x", decoded(served, data), Top())])

    question()  # warm
    latencies = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        question()
        latencies.append(time.perf_counter() - start)
    return summary(latencies, time.perf_counter() - began)


async def answered(reader: asyncio.StreamReader) -> int:
    """Read an answer to its end; its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
    await reader.readexactly(length)
    return int(head.split(maxsplit=2)[1])


async def ask(url: str, data: bytes, clients: int, seconds: float) -> tuple[list[float], float]:
    """The latencies of as many clients as asked for, and the seconds that all took. Bare connections: a
    library's client would take as much of the machine as a small model."""
    latencies: list[float] = []
    host, port = url.removeprefix("http://").split(":")
    request = post("/v1/predict", data)
    began = time.perf_counter()

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            writer.write(request)
            assert await answered(reader) == 200
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
    return started(stack, path, options)[1]


def started(
    stack: ExitStack, path: Path, options: list[str], prefix: list[str] | None = None, **pipes: Any
) -> tuple[subprocess.Popen[str], str]:
    """A server's process and address; it ends with the context."""
    command = [sys.executable, "-m", "vitreous", "serve", str(path), "--port", "0", "--json", *options]
    opened = subprocess.Popen([*(prefix or []), *command], stdout=subprocess.PIPE, text=True, **pipes)
    process = stack.enter_context(opened)
    stack.callback(process.terminate)
    assert process.stdout
    return process, str(json.loads(process.stdout.readline())["url"])


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


# --- what operators ask ---


def engine_alone(path: Path, data: bytes, seconds: float, batch: int = 32) -> float:
    """Images a second of the same decoding threads and model without a server."""
    served = classifier(path)
    done, began = 0, time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count(), initializer=lambda: torch.set_num_threads(1)) as threads:
        ahead = [threads.submit(decoded, served, data) for _ in range(2 * batch)]
        while time.perf_counter() - began < seconds:
            some, ahead = ahead[:batch], ahead[batch:]
            ahead += [threads.submit(decoded, served, data) for _ in range(batch)]
            served.predict([Question("x", each.result(), Top()) for each in some])
            done += batch
    return done / (time.perf_counter() - began)


async def one(address: tuple[str, int], request: bytes) -> tuple[int, float]:
    """The status of one request on a connection of its own, and its seconds; 0 where there is no answer."""
    began = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), 150)
        writer.close()
        return int(line.split()[1]), time.perf_counter() - began
    except (OSError, IndexError, TimeoutError):
        return 0, time.perf_counter() - began


def post(path: str, body: bytes, kind: str = "application/octet-stream", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    start = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{lines}"
    return f"{start}Content-Length: {len(body)}\r\n\r\n".encode() + body


def percentile(seconds: list[float], share: float) -> float:
    return round(1000 * float(np.percentile(seconds, share, method="lower")), 1)


async def at_rate(
    address: tuple[str, int], request: bytes, rate: float, seconds: float, *, random_arrivals: bool
) -> list[float]:
    """Latencies of requests that arrive at random or evenly, whether or not those before are answered; of one
    that is refused (503: the queue is full) it is infinite."""
    chance, tasks, began = random.Random(0), [], time.perf_counter()
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def latency() -> float:
        start = time.perf_counter()
        reader, writer = idle.pop() if idle else await asyncio.open_connection(*address)
        try:
            writer.write(request)
            status = await answered(reader)
        except (ConnectionError, asyncio.IncompleteReadError):  # idle for long: the server has closed it
            reader, writer = await asyncio.open_connection(*address)
            writer.write(request)
            status = await answered(reader)
        (idle.append((reader, writer)) if status == 200 else writer.close())
        assert status in (200, 503)
        return time.perf_counter() - start if status == 200 else float("inf")

    due = began
    while due < began + seconds:
        await asyncio.sleep(due - time.perf_counter())
        tasks.append(asyncio.create_task(latency()))
        due += chance.expovariate(rate) if random_arrivals else 1 / rate
    latencies = await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    return latencies


def queue_alone(single: float, saturated: float, rate: float, requests: int = 20_000) -> list[float]:
    """Latencies that waiting alone explains: arrivals at random, and a server that loses no time and computes
    all that wait in one batch. A batch of n takes a + b n seconds: one alone `single`, and 1 / b is the
    images a second at saturation."""
    each = 1 / saturated
    start, chance = max(single - each, 0.0), random.Random(0)
    arrivals = np.cumsum([chance.expovariate(rate) for _ in range(requests)])
    latencies: list[float] = []
    first, free = 0, 0.0
    while first < requests:
        begins = max(free, arrivals[first])
        after = int(np.searchsorted(arrivals, begins, side="right"))
        free = begins + start + each * (after - first)
        latencies += (free - arrivals[first:after]).tolist()
        first = after
    return latencies


def load(path: Path, data: bytes, seconds: float) -> dict[str, Any]:
    """Throughput at saturation, and latency at 60% of it; the engine and the server take turns."""
    request, engine, served = post("/v1/predict", data), [], []
    with ExitStack() as stack:
        url = start(stack, path, [])
        host, port = url.removeprefix("http://").split(":")
        asyncio.run(ask(url, data, 2, 1))
        for _ in range(3):
            engine.append(engine_alone(path, data, seconds))
            latencies, took = asyncio.run(ask(url, data, 64, seconds))
            served.append(len(latencies) / took)
        single, _ = asyncio.run(ask(url, data, 1, seconds))
        rate, where = 0.6 * max(served), (host, int(port))
        loaded, even = (
            asyncio.run(at_rate(where, request, rate, 2 * seconds, random_arrivals=each))
            for each in (True, False)
        )
    return {
        "engine_images_per_second": round(max(engine), 1),
        "served_images_per_second": round(max(served), 1),
        "share_of_engine": round(max(served) / max(engine), 3),
        "single_p50_ms": percentile(single, 50),
        "single_p99_ms": percentile(single, 99),
        "p99_ms_at_60_percent": percentile(loaded, 99),
        "refused_at_60_percent": sum(each == float("inf") for each in loaded + even),
        "p99_ms_of_waiting_alone": percentile(queue_alone(statistics.median(single), max(served), rate), 99),
        "p99_ms_at_60_percent_evenly": percentile(even, 99),
    }


def memory_of(process: int) -> float:
    """Resident MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024, 1)


HEADER = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def hostile(data: bytes) -> list[bytes]:
    """Requests that nothing good can come of."""
    rng, big = random.Random(0), b"0" * 3000
    boundary = {"kind": "multipart/form-data; boundary=x"}
    made = [
        post("/v1/predict", b'{"images":[' + b"1," * 1_000_000 + b"1]}", "application/json"),
        post("/v1/predict", b"[" * 50_000, "application/json"),
        post("/v1/predict", b'{"images":["' + big + b'="]}', "application/json"),
        post("/v1/predict", HEADER + (60_000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0aaaa"),
        post(
            "/v1/predict", HEADER + (1).to_bytes(4, "big") + (30_000).to_bytes(4, "big") + b"\x08\0\0\0\0aaaa"
        ),
        post("/v1/predict?top=x", data),
        post("/v1/predict", b"--x\r\n" * 5000, **boundary),
        post("/v1/predict", data, Origin="http://evil.example"),
        post("/v1/predict", data, "text/html"),
        post("/v1/attention?patch=999x999", data),
        post("/v2/models/x/infer", b"{}", "application/json"),
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"\x16\x03\x01" + big,
        b"GET / HTTP/1.1\r\n" + b"A: " + big * 40 + b"\r\n\r\n",
    ]
    while len(made) < 1000:
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 40)):
            damaged[rng.randrange(min(len(damaged), 600))] = rng.randrange(256)
        made.append(post("/v1/predict", bytes(damaged[: rng.randrange(20, len(damaged))])))
    return made


def large() -> bytes:
    """63 million pixels in few bytes."""
    buffer = io.BytesIO()
    Image.new("RGBA", (7900, 8000)).save(buffer, "PNG", compress_level=9)
    return buffer.getvalue()


async def beside(
    process: int,
    address: tuple[str, int],
    small: bytes,
    trouble: Callable[[], Awaitable[Any]],
    seconds: float,
) -> dict[str, Any]:
    """What another client's small requests meet while there is trouble, and the server's memory."""
    task = asyncio.ensure_future(trouble())
    await asyncio.sleep(1)
    found, most, until = [], 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        found.append(await one(address, small))
        most = max(most, memory_of(process))
        await asyncio.sleep(0.1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    latencies = [latency for _, latency in found]
    return {
        "others": len(found),
        "others_answered": sum(status == 200 for status, _ in found),
        "others_p50_ms": percentile(latencies, 50),
        "others_slowest_ms": percentile(latencies, 100),
        "largest_mib": most,
    }


def strangers(path: Path, data: bytes) -> dict[str, Any]:
    """Everything at one server, and then at one with few files."""
    small = post("/v1/predict", digit())
    found: dict[str, Any] = {}
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with ExitStack() as stack:
        process, url = started(stack, path, [])
        host, port = url.removeprefix("http://").split(":")
        address = host, int(port)

        async def soak(count: int) -> None:
            for _ in range(count // 50):
                answers = await asyncio.gather(*(one(address, small) for _ in range(50)))
                assert {status for status, _ in answers} == {200}

        async def silent() -> None:
            await hold([b""] * 1100, 30)

        async def slow() -> None:
            await hold([post("/v1/predict", data)[:-1000]] * 400, 30)

        async def hold(starts: list[bytes], seconds: float) -> None:
            writers = []
            for each in starts:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection(*address)
                    writer.write(each)
                    writers.append(writer)
            try:
                await asyncio.sleep(seconds)
            finally:
                for writer in writers:
                    writer.close()

        async def images() -> None:
            await asyncio.gather(*(one(address, post("/v1/predict", large())) for _ in range(64)))

        async def everything() -> None:
            await soak(1000)
            found["soak"] = {"mib_after_1000": memory_of(process.pid)}
            for count in (5000, 10_000):
                await soak(count - (1000 if count == 5000 else 5000))
                found["soak"][f"mib_after_{count}"] = memory_of(process.pid)
            answers = [await one(address, each) for each in hostile(data)]
            statuses = [status for status, _ in answers]
            found["hostile"] = {  # 2xx: damage that does not matter
                "requests": len(answers),
                "answered_2xx": sum(
                    200 <= status < 300 for status in statuses
                ),  # damage that does not matter
                "answered_4xx": sum(400 <= status < 500 for status in statuses),
                "answered_5xx": sum(status >= 500 for status in statuses),
                "closed": statuses.count(0),
                "slowest_ms": percentile([latency for _, latency in answers], 100),
            }
            found["silent_1100"] = await beside(process.pid, address, small, silent, 10)
            found["slow_400"] = await beside(process.pid, address, small, slow, 10)
            found["large_64"] = await beside(process.pid, address, small, images, 20)
            found["mib_at_the_end"] = memory_of(process.pid)

        asyncio.run(everything())
    with ExitStack() as stack, tempfile.TemporaryFile() as errors:
        limit = ["bash", "-c", 'ulimit -Hn 128; exec "$@"', "--"]
        process, url = started(stack, path, [], prefix=limit, stderr=errors)
        host, port = url.removeprefix("http://").split(":")

        async def files() -> dict[str, Any]:
            async def many() -> None:
                opened = []
                for _ in range(600):
                    with suppress(OSError, TimeoutError):
                        opened.append(await asyncio.wait_for(asyncio.open_connection(host, int(port)), 1))
                await asyncio.sleep(20)

            return await beside(process.pid, (host, int(port)), small, many, 10)

        found["files_128"] = asyncio.run(files())
        found["files_128"]["bytes_on_stderr"] = errors.seek(0, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row")
    parser.add_argument("--slices", type=int, default=2, help="that a row's time is cut into")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    parser.add_argument("--only", choices=["ways", "load", "strangers"])
    options = parser.parse_args()
    kept = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    parts = {name: kept[name] for name in ("rows", "load", "strangers") if name in kept}
    with tempfile.TemporaryDirectory() as folder:
        made = models(Path(folder))
        if options.only in (None, "ways"):
            asked = {"seconds": options.seconds, "slices": options.slices}
            parts["rows"] = [row for name, each in made.items() for row in measure(name, *each, **asked)]
        if options.only in (None, "load"):
            parts["load"] = {name: load(*each, options.seconds) for name, each in made.items()}
        if options.only in (None, "strangers"):
            parts["strangers"] = strangers(made["digits"][0], photograph())
    results = {
        **parts,
    }
    write_results(results, options.out, machine="shared by clients and servers")


if __name__ == "__main__":
    main()
