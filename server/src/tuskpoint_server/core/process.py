"""The process: exit codes, the lock on the data directory, logs, telemetry.

docs/servers/starting-and-stopping.md lists the exit codes.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace

from .limits import MIB

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

_log = logging.getLogger(__name__)

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h

EXIT_DEFECT = 1
EXIT_CONFIG = 2
EXIT_DATA_DIR_TAKEN = 3
EXIT_ADDRESS = 4
EXIT_DIRECTORY = 5
EXIT_JOURNAL = 6
EXIT_ARCHIVE = 7
EXIT_DAMAGED = 8
EXIT_LEFT_OUT = 9


class StartError(Exception):
    """The server cannot start or recover. The text is one line; `code` is the exit code."""

    def __init__(self, code: int, problem: str) -> None:
        self.code = code
        super().__init__(problem)


class ConfigError(StartError):
    """A setting, or a file of a setting, is unusable; the text names both thing and problem."""

    def __init__(self, problem: str) -> None:
        super().__init__(EXIT_CONFIG, problem)


def return_freed_memory() -> None:
    """Return free memory to the system: now, and large blocks as soon as they are freed.

    glibc maps large blocks separately, but raises the threshold whenever such a block is freed, up
    to 32 MiB. Large values would then stay in the heaps of the threads that read
    them. Smaller blocks, such as chunks and messages, are faster on a heap. Other C libraries have
    no such settings.
    """
    library = ctypes.CDLL(None)
    try:
        library.mallopt(_MMAP_THRESHOLD, 8 * MIB)
        library.malloc_trim(0)
    except AttributeError:
        pass


def read_bytes(flag: str, path: Path) -> bytes:
    """Return the content of a file that a flag names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror or error}") from None


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a directory, durable (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


KEPT_DESCRIPTORS = 256
"""Open files for the journal, blobs and everything else besides clients' connections."""


def allowed_connections(wanted: int, listeners: int) -> int:
    """Raise the limit of open files; return how many connections each listener may accept.

    Clients then never take the descriptors that the journal needs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = wanted * listeners + KEPT_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        raised = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    allowed = wanted if soft == resource.RLIM_INFINITY else (soft - KEPT_DESCRIPTORS) // listeners
    if allowed >= wanted:
        return wanted
    allowed = max(allowed, 1)
    _log.warning(
        "the limit of %d open files allows %d connections on each address instead of the %d of "
        "--max-connections; raise it (ulimit -n)",
        *(soft, allowed, wanted),
    )
    return allowed


class DataDirLock:
    """Holds the data directory until released, or until the process ends: one server at a time.

    An advisory lock (flock) on the file `lock` inside; the file names the holder and stays.
    """

    def __init__(self, directory: Path) -> None:
        with require_usable("data directory", directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = directory.stat()
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                directory.chmod(status.st_mode & 0o700)
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            holder = f"process {pid}" if pid else "another process"
            raise StartError(
                EXIT_DATA_DIR_TAKEN,
                f"data directory {directory} is in use by {holder}: stop it, or choose another "
                "--data-dir",
            ) from None
        with require_usable("data directory", directory):  # in place, for full disks
            size = os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
            os.ftruncate(self._file, size)

    def release(self) -> None:
        """Release the lock for the next server."""
        os.close(self._file)


@contextmanager
def require_usable(what: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StartError` that names the path."""
    try:
        yield
    except OSError as error:
        raise StartError(
            EXIT_DIRECTORY,
            f"{what} {path} cannot be created or written: {error.strerror or error}; "
            "choose another, or change its permissions",
        ) from None


_NOISY = ("sqlalchemy", "grpc._cython", "asyncio", "uvicorn")
"""Loggers whose details are logged only at level debug."""

_REVEALING = ("httpx", "httpcore", "hpack", "memwal")
"""Loggers whose details are never logged: URLs and headers, credentials included."""


class _OneLineFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\r", "\\r").replace("\n", "\\n")


LOG_FIELDS = "fields"
"""Key in `extra` for the parts of a line, which become fields of a JSON line."""


class _JsonFormatter(_OneLineFormatter):
    """Formats each line as a JSON object; `trace_id` and `span_id` name the current span."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        fields = {
            "time": f"{self.formatTime(record, self.datefmt)}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.message,
            **getattr(record, LOG_FIELDS, {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            fields["trace_id"] = trace.format_trace_id(span.trace_id)
            fields["span_id"] = trace.format_span_id(span.span_id)
        return json.dumps(fields, ensure_ascii=False)


def configure_logs(level: str, form: str = "text") -> None:
    """Log events of this severity and above to stderr, one line each, never with a payload.

    `form`: `text` or `json`.
    """
    handler = logging.StreamHandler(sys.stderr)
    line = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
    formatter = _JsonFormatter if form == "json" else _OneLineFormatter
    handler.setFormatter(formatter(line, "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # gRPC's warning about metadata that is not UTF-8 quotes it, credentials included.
    logging.getLogger("grpc._cython.cygrpc").addFilter(
        lambda record: not str(record.msg).startswith("Invalid encoding")
    )
    for name in _REVEALING if level == "debug" else _REVEALING + _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


def start_telemetry(
    exporter: str, version: str, metrics_address: tuple[str, int] | None = None
) -> Callable[[], None]:
    """Send traces and metrics to an exporter; return a function that flushes and stops both.

    Prometheus can read the metrics at an address, too. `OTEL_*` variables work as OpenTelemetry
    documents them. The SDK is imported only here.
    """
    stops: list[Callable[[], object]] = []
    readers: list[MetricReader] = []
    if exporter != "none" or metrics_address is not None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        attributes = {"service.version": version}
        if not os.environ.get("OTEL_SERVICE_NAME"):
            attributes["service.name"] = "tuskpoint-server"
        resource = Resource.create(attributes)
        if metrics_address is not None:
            readers.append(_serve_metrics(*metrics_address, stops))
        if exporter != "none":
            readers.append(_export(exporter, resource, stops))
        meters = MeterProvider(readers, resource)
        metrics.set_meter_provider(meters)
        stops.append(meters.shutdown)

    def stop() -> None:
        for shutdown in stops:
            shutdown()

    return stop


def _serve_metrics(host: str, port: int, stops: list[Callable[[], object]]) -> MetricReader:
    """Serve the metrics for Prometheus at an address, until the added function is called."""
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise ConfigError(
            "--metrics-listen needs the Prometheus exporter; pip install "
            "'tuskpoint-server[prometheus]'"
        ) from None
    registry = CollectorRegistry()
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise StartError(
            EXIT_ADDRESS,
            f"cannot listen on {address}: {error.strerror or error}; choose another "
            "--metrics-listen (port 0 picks a free one)",
        ) from None
    _log.info("metrics for Prometheus on http://%s:%d/metrics", *server.server_address[:2])
    stops += [server.shutdown, server.server_close, thread.join]
    return PrometheusMetricReader(registry=registry)


def _export(exporter: str, resource: Resource, stops: list[Callable[[], object]]) -> MetricReader:
    """Send spans to an exporter, and return the reader that sends metrics to the exporter."""
    from opentelemetry.sdk.metrics import export as metric_export
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace import export as span_export

    spans: span_export.SpanExporter
    measures: metric_export.MetricExporter
    if exporter == "otlp":
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        except ImportError:
            raise ConfigError(
                "the OTLP exporter is not installed; pip install 'tuskpoint-server[otlp]'"
            ) from None
        spans, measures = OTLPSpanExporter(), OTLPMetricExporter()
    else:  # stdout is for the line with the address
        spans = span_export.ConsoleSpanExporter(out=sys.stderr)
        measures = metric_export.ConsoleMetricExporter(out=sys.stderr)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(span_export.BatchSpanProcessor(spans))
    trace.set_tracer_provider(tracers)
    stops.append(tracers.shutdown)
    return metric_export.PeriodicExportingMetricReader(measures)
