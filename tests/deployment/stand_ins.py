"""Stand-ins for the services of compose.yaml that are not servers of this project."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import psycopg
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from psycopg import sql

from bench.running.postgres import running_postgres
from tests.kit.servers.processes import unused_port

_RULES = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_COLLECTOR = "opentelemetry.proto.collector"


@contextmanager
def password_postgres(variables: Mapping[str, str]) -> Iterator[int]:
    """Run PostgreSQL as its image does with these variables; yield its port on 127.0.0.1.

    Raises:
        LeftOutError: PostgreSQL is not installed, or does not start.
    """
    port = unused_port()
    with tempfile.NamedTemporaryFile("w", prefix="tuskpoint-hba-") as rules:
        rules.write(_RULES)
        rules.flush()
        Path(rules.name).chmod(0o644)  # PostgreSQL runs as another user.
        listen = (f"port={port}", "listen_addresses=127.0.0.1", f"hba_file={rules.name}")
        with running_postgres(*listen, "fsync=off") as dsn:
            with psycopg.connect(f"{dsn} port={port}", autocommit=True) as connection:
                user, name = (
                    sql.Identifier(variables[f"POSTGRES_{key}"]) for key in ("USER", "DB")
                )
                password = sql.Literal(variables["POSTGRES_PASSWORD"])
                connection.execute(
                    sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(user, password)
                )
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, user))
            yield port


class Collector:
    """An OTLP collector of traces and metrics; runs inside the context.

    Attributes:
        port: The collector's port on 127.0.0.1.
        traces: `service.instance.id` of each sender of traces.
        metrics: `service.instance.id` of each sender of metrics.
    """

    def __init__(self) -> None:
        self.traces: set[str] = set()
        self.metrics: set[str] = set()
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    f"{_COLLECTOR}.trace.v1.TraceService",
                    {"Export": _export(traces.ExportTraceServiceRequest, self._take_traces)},
                ),
                grpc.method_handlers_generic_handler(
                    f"{_COLLECTOR}.metrics.v1.MetricsService",
                    {"Export": _export(metrics.ExportMetricsServiceRequest, self._take_metrics)},
                ),
            )
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Collector:
        self._server.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()

    def _take_traces(self, request: Any, _context: object) -> bytes:
        self.traces |= _instances(request.resource_spans)
        return b""

    def _take_metrics(self, request: Any, _context: object) -> bytes:
        self.metrics |= _instances(request.resource_metrics)
        return b""


def _export(request: Any, take: Any) -> grpc.RpcMethodHandler[Any, Any]:
    # An empty answer accepts everything.
    return grpc.unary_unary_rpc_method_handler(take, request_deserializer=request.FromString)


def _instances(parts: Any) -> set[str]:
    return {
        attribute.value.string_value
        for part in parts
        for attribute in part.resource.attributes
        if attribute.key == "service.instance.id"
    }
