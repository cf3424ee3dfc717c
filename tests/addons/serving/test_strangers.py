"""What strangers may send: nothing of it stops the server for others."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image, ImageFile
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import vitreous as vt
from vitreous.addons.serving.limits import ServerLimits
from vitreous.addons.serving.models import Classifier
from vitreous.addons.serving.run import hosts_of, read_token
from vitreous.errors import InputError
from vitreous.models.stored import BadImage

from .conftest import (
    CPU,
    HOW,
    app_of,
    at_an_address,
    error_of,
    form,
    get,
    image,
    make_classifier,
    make_vit,
    post,
    talk,
    with_answer,
)
from .test_api import bomb

JSON = {"content-type": "application/json"}


def narrow(rows: int) -> bytes:
    """A PNG of one column, in some hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, rows, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(2 * rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def plain(side: int, kind: str) -> bytes:
    """A gray square."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), "gray").save(buffer, kind)
    return buffer.getvalue()


# --- cost before work --------------------------------------------------------------------------------------


@pytest.fixture
def no_pixel_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("its pixels are decoded"))


@pytest.mark.usefixtures("no_pixel_is_decoded")
def test_a_narrow_image_is_refused_by_its_header(classifier: Classifier) -> None:
    """Resized so that its one column has the model's width, it would take gigabytes."""
    answer = post(app_of(classifier), "/v1/predict", **form(("narrow.png", narrow(30_000))))
    assert answer.status_code == 422
    assert "1x30000 pixels are too narrow" in error_of(answer)


def test_a_format_that_is_decoded_under_the_interpreters_lock_has_a_lower_limit() -> None:
    """One JPEG 2000 of 56 million pixels held every other client for more than a minute."""
    served = Classifier(make_vit(), CPU, **HOW | {"most_pixels": 10**8})
    answers = []
    for side, kind in ((64, "JPEG2000"), (2001, "JPEG2000"), (2001, "JPEG")):
        file = plain(side, kind)
        answers.append(post(app_of(served), "/v1/predict", **form(("x", file))))
    assert [answer.status_code for answer in answers] == [200, 422, 200]
    assert "2001x2001 pixels exceed the 4000000 that are allowed in JPEG 2000" in error_of(answers[1])


@pytest.mark.usefixtures("no_pixel_is_decoded")
def test_no_pixel_is_decoded_before_the_header_is_checked_and_room_is_made(classifier: Classifier) -> None:
    """Pillow reads a PNG's EXIF data by decoding it: 63 million pixels, in the threads of small images."""
    with pytest.raises(BadImage, match="5000x5000 pixels exceed"):
        classifier.prepare(bomb(), "bomb.png")


def test_a_length_over_the_limit_is_refused_before_the_body(classifier: Classifier) -> None:
    async def promised(client: httpx.AsyncClient) -> httpx.Response:
        async def chunks() -> Any:
            pytest.fail("the body is read")
            yield b""

        headers = {"content-type": "image/png", "content-length": str(10**9)}
        return await client.post("/v1/predict", content=chunks(), headers=headers)

    answer = talk(app_of(classifier), promised)
    assert answer.status_code == 413
    assert "the body exceeds the limit of 32 MiB" in error_of(answer)


# --- admission ---------------------------------------------------------------------------------------------


def test_a_body_that_stands_still_is_given_up(classifier: Classifier) -> None:
    async def silent(client: httpx.AsyncClient) -> httpx.Response:
        async def chunks() -> Any:
            yield image()[:100]
            await asyncio.sleep(600)

        return await client.post("/v1/predict", content=chunks(), headers={"content-type": "image/png"})

    began = time.perf_counter()
    answer = talk(app_of(classifier, limits=ServerLimits(stalled=0.2)), silent)
    assert answer.status_code == 408
    assert "stalled for 0.2 s" in error_of(answer)
    assert time.perf_counter() - began < 300


def test_bodies_together_are_limited(classifier: Classifier) -> None:
    """What one is refused for comes free again."""
    limits = ServerLimits(body=50_000, memory=60_000)

    async def crowd(client: httpx.AsyncClient) -> list[httpx.Response]:
        ended = asyncio.Event()

        async def unfinished() -> Any:
            yield bytes(50_000)
            await ended.wait()

        async def ask() -> httpx.Response:
            padded = image() + bytes(20_000)
            return await client.post("/v1/predict", content=padded, headers={"content-type": "image/png"})

        slow = client.post("/v1/predict", content=unfinished(), headers={"content-type": "image/png"})
        waiting = asyncio.create_task(slow)
        await asyncio.sleep(0.2)
        refused = await ask()
        ended.set()
        await waiting
        return [refused, await ask()]

    refused, answered = talk(app_of(classifier, limits=limits), crowd)
    assert (refused.status_code, answered.status_code) == (503, 200)
    assert "memory for requests is full" in error_of(refused)


def test_there_are_never_more_connections_than_files() -> None:
    """A process may have 256 files open on macOS, and 1,024 on Linux, unless it asks for more."""
    pytest.importorskip("resource", reason="Windows has no such limit")
    program = """if True:
        import resource
        from vitreous.addons.serving.limits import most_connections
        for most in (4096, 200):
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, most))
            print(most_connections(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["1000 1192", "8 200"]


def test_silent_connections_leave_others_served(classifier: Classifier) -> None:
    limits = ServerLimits(connections=40, header_seconds=600)
    app = app_of(classifier, limits=limits)
    with at_an_address(app, limits) as url, ExitStack() as stack:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        for number in range(100):
            silent = stack.enter_context(socket.create_connection(place))
            if number % 2:
                silent.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nabc")
        for _ in range(5):
            began = time.perf_counter()
            assert httpx.get(url + "/healthz", timeout=300).status_code == 200
            assert time.perf_counter() - began < 60


PROTOCOLS = {"h11": H11Protocol, "httptools": HttpToolsProtocol}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_client_that_has_sent_all_may_close_its_sending_side(classifier: Classifier, protocol: Any) -> None:
    """As `nc -N` does; a client that closes it before its body is there is gone."""
    with at_an_address(app_of(classifier), protocol=protocol) as url:
        place, body = ("127.0.0.1", int(url.rpartition(":")[2])), image()
        head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
        for sent, answer in ((body, b"HTTP/1.1 200 "), (body[:-9], b"")):
            with socket.create_connection(place, timeout=60) as client:
                client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + sent)
                client.shutdown(socket.SHUT_WR)
                assert read_all(client)[:13] == answer


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_chunk_of_a_negative_size_is_refused_once(
    classifier: Classifier, protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    with at_an_address(app_of(classifier), protocol=protocol) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        for chunks in ((head + b"-5\r\nabcde\r\n0\r\n\r\n",), (head, b"3\r\nabc\r\n", b"-5\r\nabcde\r\n")):
            with socket.create_connection(place, timeout=60) as client:
                for chunk in chunks:
                    client.sendall(chunk)
                    time.sleep(0.05)
                answer = read_all(client)
                assert (answer[:13], answer.count(b"HTTP/1.1")) == (b"HTTP/1.1 400 ", 1)
        assert httpx.get(url + "/healthz", timeout=300).status_code == 200
    assert not caplog.records


def read_all(client: socket.socket) -> bytes:
    found = b""
    while some := client.recv(65536):
        found += some
    return found


@pytest.mark.slow
def test_more_silent_connections_than_files_neither_fill_the_log_nor_stop_answers(tmp_path: Path) -> None:
    """1,100 clients that say nothing, of a server that may have 1,024 files open."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("this process may not have as many files open")
    vt.save(make_vit(), tmp_path / "model")
    program = f"""if True:
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        import vitreous as vt
        vt.serve({str(tmp_path / "model")!r}, port=0, ready=lambda url, about: print(url, flush=True))"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    try:
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=log) as server,
            ExitStack() as stack,
        ):
            stack.callback(server.terminate)
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip()
            place = ("127.0.0.1", int(url.rpartition(":")[2]))
            for _ in range(1100):
                silent = stack.enter_context(socket.socket())
                silent.setblocking(False)
                silent.connect_ex(place)
            for _ in range(20):
                began = time.perf_counter()
                assert httpx.post(url + "/v1/predict", timeout=120, **form(("x.png", image()))).is_success
                assert time.perf_counter() - began < 60
        assert (tmp_path / "log").stat().st_size < 5000, (tmp_path / "log").read_bytes()[:2000]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_headers_that_do_not_arrive_are_given_up(classifier: Classifier) -> None:
    limits = ServerLimits(header_seconds=0.3)
    with at_an_address(app_of(classifier), limits) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        for start in (b"", b"GET /healthz HTTP/1.1\r\nHost: "):
            with socket.create_connection(place, timeout=30) as slow:
                slow.sendall(start)
                assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
        with socket.create_connection(place, timeout=30) as kept:  # the next request of a connection, too
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while b'"ok"' not in answer:
                answer += kept.recv(1000)
            kept.sendall(b"GET /healthz")
            assert kept.recv(100).startswith(b"HTTP/1.1 408 ")


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    gate = threading.Event()
    served = with_answer(make_classifier(), lambda questions: gate.wait(20))

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        late = await client.post("/v1/predict", **form(("x.png", image())))
        gate.set()
        return late

    late = talk(app_of(served, limits=ServerLimits(deadline=0.3)), ask)
    assert late.status_code == 504
    assert "longer than 0.3 s" in error_of(late)


# --- who may ask -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"host": "evil.example"}, 421, "does not accept the host 'evil.example'"),
        ({"host": "[::1"}, 400, "not a valid address"),
        ({"host": "localhost:8000", "origin": "http://evil.example"}, 403, "pages of other servers"),
        ({"host": "localhost:8000", "origin": "null"}, 403, "pages of other servers"),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, 200, ""),
        ({"host": "127.0.0.1:8000"}, 200, ""),
        ({"host": "LOCALHOST"}, 200, ""),
    ],
)
def test_a_page_elsewhere_cannot_use_the_server(
    classifier: Classifier, headers: dict[str, str], status: int, words: str
) -> None:
    app = app_of(classifier, hosts=hosts_of("127.0.0.1", ()))
    answer = post(app, "/v1/predict", **form(("x.png", image())), headers=headers)
    assert answer.status_code == status
    assert status == 200 or words in error_of(answer)


def test_hosts_that_are_answered() -> None:
    assert hosts_of("0.0.0.0", ()) is None
    assert "models.example" in (hosts_of("0.0.0.0", ["Models.Example"]) or ())


def test_a_token_is_needed_for_all_but_health_and_page(classifier: Classifier, tmp_path: Path) -> None:
    app = app_of(classifier, token="0123456789abcdef")
    for path in ("/", "/healthz"):
        assert get(app, path).status_code == 200, path
    request = form(("x.png", image()))
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic 0123456789abcdef"}):
        refused = post(app, "/v1/predict", **request, headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "0123456789abcdef" not in error_of(refused)
    for path in ("/v1/model", "/metrics", "/openapi.json"):
        assert get(app, path).status_code == 401, path
    good = {"authorization": "Bearer 0123456789abcdef"}
    assert post(app, "/v1/predict", **request, headers=good).status_code == 200


@pytest.mark.parametrize("text", ["", "short", "0123456789\x1babcdef", "schlüssel-und-schloss"])
def test_a_token_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InputError, match="16 or more printable"):
        read_token(tmp_path / "token")
    with pytest.raises(InputError, match="cannot read `token_file`"):
        read_token(tmp_path / "none")
