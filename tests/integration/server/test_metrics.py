"""Prometheus reads every documented metric, and alerts and dashboard use existing metrics."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests.integration.access.tls_kit import write_certificates
from tests.integration.conftest import RefusedProgram
from tests.kit.servers.processes import LISTENING, WalrusProcess, await_line, own_environment
from tuskpoint import Client
from tuskpoint_server.core.process import EXIT_ADDRESS

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "server" / "src" / "tuskpoint_server"
FILES = ROOT / "deploy" / "helm" / "tuskpoint" / "files"
"""Alerts and dashboard, in the Helm chart."""
UNITS = {"s": "_seconds", "By": "_bytes"}
ENDINGS = {
    "counter": ["_total"],
    "up_down_counter": [""],
    "histogram": ["_bucket", "_sum", "_count"],
    "observable_counter": ["_total"],
    "observable_gauge": [""],
    "observable_up_down_counter": [""],
}
OF_PROMETHEUS = {"up"}
LABELS_OF_PROMETHEUS = {"instance", "job", "le"}
FUNCTIONS = {
    *(
        "absent",
        "by",
        "for",
        "histogram_quantile",
        "increase",
        "max",
        "min",
        "offset",
        "or",
        "rate",
        "sum",
    )
}


class Served(NamedTuple):
    """Names of all possible metrics, and the text that Prometheus read."""

    names: set[str]
    text: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Return the metrics of a server with TLS and Walrus that saved and certified a checkpoint."""
    folder = tmp_path_factory.mktemp("metrics")
    pem, created, log = write_certificates(folder / "tls"), folder / "created", folder / "log"
    command = [sys.executable, "-m", "tests.kit.servers.instruments", str(created)]
    command += ["--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")]
    (folder / "secret").write_text("whsec_" + "A" * 44)
    (folder / "webhooks.toml").write_text(
        '[[webhook]]\nname = "ops"\nurl = "https://hooks.example.com/"\n'
        'events = ["thread.waiting"]\nsecret_file = "secret"\n'
    )
    command += ["--webhooks", str(folder / "webhooks.toml")]
    command += ["--insecure-anonymous", "--metrics-listen", "127.0.0.1:0", *pem.server_flags]
    with (
        WalrusProcess() as walrus,
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env={**own_environment(), **walrus.settings},
        ) as process,
    ):
        assert process.stdout is not None
        target = await_line(process.stdout, LISTENING)
        assert target is not None, log.read_text("utf-8")
        with Client(target, ca_file=pem.ca) as client:
            client.save("thread", {"x": 1})
            client.flush()
        address = re.search(r"http://\S+/metrics", log.read_text("utf-8"))
        assert address is not None
        text = httpx.get(address[0], trust_env=False).text
        process.terminate()
        process.communicate()
        assert process.returncode == 0, log.read_text("utf-8")
    names = set()
    for line in created.read_text("utf-8").splitlines():
        kind, name, unit = line.split(" ", 2)
        base, ending = name.replace(".", "_"), UNITS.get(unit, "")
        base = base.removesuffix(ending) + ending
        names |= {base + ending for ending in ENDINGS[kind]}
    return Served(names, text)


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((FILES / "alerts.yaml").read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, without the headings of its rows."""
    content = json.loads((FILES / "dashboard.json").read_text("utf-8"))["panels"]
    return [panel for panel in content if panel["type"] != "row"]


EXPRESSIONS = [
    *((rule["alert"], rule["expr"]) for rule in alerts()),
    *((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]),
]


def test_names_are_those_that_prometheus_reads(served: Served) -> None:
    read = set(re.findall(r"^([a-z_]+)\{", served.text, re.MULTILINE))
    assert {"rpc_server_call_duration_seconds_count", "tuskpoint_server_memory_bytes"} <= read
    assert {"tuskpoint_journal_size_bytes", "process_memory_usage_bytes"} <= read
    assert read - {"target_info"} <= served.names
    assert 'rpc_method="tuskpoint.v1.CheckpointService/SaveCheckpoint"' in served.text


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[case[0] for case in EXPRESSIONS])
def test_alerts_and_panels_name_metrics_and_labels_that_exist(
    served: Served, name: str, expression: str
) -> None:
    labels = set(re.findall(r"(\w+)(?==~|!=|=\")", expression))
    for listed in re.findall(r"by \(([^)]*)\)", expression):
        labels |= {label.strip() for label in listed.split(",")}
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)|\"[^\"]*\"|\b\d+[hmd]?\b", " ", expression)
    names = set(re.findall(r"[a-zA-Z_]\w*", bare)) - FUNCTIONS
    assert names, expression
    assert names - OF_PROMETHEUS <= served.names
    source = "".join(path.read_text("utf-8") for path in SERVER.rglob("*.py"))
    for label in labels - LABELS_OF_PROMETHEUS:
        assert (
            f'"{label}"' in source
            or f'"{label.replace("_", ".")}"' in source
            or (f'"{label.replace("_", ".", 2)}"' in source)
        ), label


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[case[0] for case in EXPRESSIONS])
def test_a_missing_checkpoint_and_a_client_that_hangs_up_are_no_errors(
    name: str, expression: str
) -> None:
    """An expression that selects calls by status excludes both normal codes, or names no code."""
    for operator, pattern in re.findall(r'status_code(=~|!~|!=|=)"([^"]*)"', expression):
        assert operator != "!=", "leaves out one status only"
        for normal in ("NOT_FOUND", "CANCELLED"):
            is_named = re.fullmatch(pattern, normal) is not None
            assert is_named == (operator == "!~"), name


def test_every_panel_says_what_it_shows_in_which_unit_and_what_is_too_much() -> None:
    titles = [panel["title"] for panel in panels()]
    assert len(titles) == len(set(titles))
    for panel in panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["thresholds"]["steps"][0]["value"] is None, panel["title"]


def test_the_state_of_the_servers_comes_first() -> None:
    top = [panel for panel in panels() if panel["gridPos"]["y"] == 0]
    assert [panel["type"] for panel in top] == ["stat"] * 5
    names = ["Servers up", "Saves per second", "p99 of saves", "Uncertified age", "Disk free"]
    assert [panel["title"] for panel in top] == names


def test_panels_do_not_overlap() -> None:
    content = json.loads((FILES / "dashboard.json").read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in content}) == len(content)
    cells: set[tuple[int, int]] = set()
    for panel in content:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert cells.isdisjoint(covered), panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells |= covered


@pytest.mark.parametrize(
    ("title", "alert"),
    [
        ("p99 of saves", "TuskPointSavesSlow"),
        ("Duration of saves", "TuskPointSavesSlow"),
        ("Uncertified age", "TuskPointNotCertified"),
        ("Backlog: age of the oldest change", "TuskPointNotCertified"),
        ("Backlog: bytes that wait for certification", "TuskPointBacklogLarge"),
        ("Disk free", "TuskPointDiskFull"),
        ("Free disk", "TuskPointDiskFull"),
        ("Flushes that failed", "TuskPointFlushesFail"),
        ("Denied calls per second", "TuskPointCallersDenied"),
        ("Memory that calls hold", "TuskPointMemoryFull"),
        ("Time until blobs expire", "TuskPointBlobsExpire"),
    ],
)
def test_a_panel_turns_red_where_its_alert_fires(title: str, alert: str) -> None:
    [expression] = [rule["expr"] for rule in alerts() if rule["alert"] == alert]
    comparison = re.search(r"([<>]) ([\d.* ]+)$", expression.strip())
    assert comparison is not None, expression
    bound = math.prod(float(factor) for factor in comparison[2].split("*"))
    [panel] = [panel for panel in panels() if panel["title"] == title]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    number = [step["color"] for step in steps].index("red")
    turn = steps[number if comparison[1] == ">" else number + 1]["value"]
    assert turn == pytest.approx(bound)


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs/servers/monitoring.md").read_text("utf-8")
    for rule in alerts():
        assert f"| `{rule['alert']}` |" in page
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
    assert len(re.findall(r"^\| `TuskPoint\w+` \|", page, re.MULTILINE)) == len(alerts())


def test_a_taken_port_is_one_line(tmp_path: Path, refused_program: RefusedProgram) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        code, line = refused_program("--data-dir", str(tmp_path), "--metrics-listen", address)
    assert code == EXIT_ADDRESS
    assert f"cannot listen on {address}: Address already in use; choose another --metrics" in line


def test_without_the_exporter_the_line_names_the_extra(
    tmp_path: Path, refused_program: RefusedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    code, line = refused_program("--data-dir", str(tmp_path), "--metrics-listen", "127.0.0.1:0")
    assert code == 2
    assert "pip install 'tuskpoint-server[prometheus]'" in line


def test_an_address_that_is_none_is_one_line(refused_program: RefusedProgram) -> None:
    code, line = refused_program("--metrics-listen", "9090")
    assert code == 2
    assert "--metrics-listen must be HOST:PORT, not '9090'" in line
