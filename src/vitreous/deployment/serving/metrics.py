"""What GET /metrics tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "vitreous_requests", "Answered requests", ["endpoint", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "vitreous_request_seconds",
            "From a request's first byte to its answer",
            ["endpoint"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.sizes = Histogram(
            "vitreous_batch_size",
            "Images or texts computed together",
            ["endpoint"],
            buckets=SIZES,
            registry=self.registry,
        )
        self.computing = Histogram(
            "vitreous_batch_seconds",
            "Time of the model for a batch",
            ["endpoint"],
            buckets=SECONDS,
            registry=self.registry,
        )
        queue = Gauge(
            "vitreous_queue", "Images or texts accepted and not yet answered", registry=self.registry
        )
        queue.set_function(waiting)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def batch(self, endpoint: str, size: int, seconds: float) -> None:
        self.sizes.labels(endpoint).observe(size)
        self.computing.labels(endpoint).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
