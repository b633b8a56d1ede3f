"""The Helm chart: what it renders is valid and starts, and it refuses what would lose data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deployment.conftest import Tool
from tests.deployment.files import ROOT, STOP_SECONDS, image
from tuskpoint_server.config import command_line
from tuskpoint_server.config.settings import split_address

CHART = str(ROOT / "deploy" / "helm" / "tuskpoint")
VERSIONS = ("1.27", "1.37")
"""The oldest Kubernetes of the chart, and the newest that its test knows."""

PLAINTEXT = ["insecurePlaintext=true"]
SHARED = [
    "journal.kind=postgresql",
    "journal.existingSecret=journal",
    "blobs.url=s3://bucket/prefix",
]
SECURE = ["tls.existingSecret=tls", "tokens.existingSecret=tokens"]
RENDERED = {
    "one server": PLAINTEXT,
    "three servers": [
        *SHARED,
        *SECURE,
        "keys.existingSecret=keys",
        "replicas=3",
        "blobs.existingSecret=bucket",
        "memwal.accountId=0x1",
        "memwal.existingSecret=memwal",
        "http.enabled=true",
        "http.origins={https://a.example,https://b.example}",
        "env[0].name=TUSKPOINT_LOG_LEVEL",
        "env[0].value=debug",
    ],
    "client certificates": [*SHARED, "tls.existingSecret=tls", "tls.clientCaSecret=ca"],
    "everything else": [
        *PLAINTEXT,
        "walrus.publisherUrls={https://a.example,https://b.example}",
        "walrus.aggregatorUrls={https://c.example}",
        "public=true",
        "persistence.storageClass=fast",
        "service.type=LoadBalancer",
        "service.annotations.a=b",
        "serviceAccount.create=false",
        "podAnnotations.a=b",
        "imagePullSecrets[0].name=registry",
        "nodeSelector.a=b",
        "priorityClassName=high",
        "topologySpreadConstraints[0].maxSkew=1",
        "topologySpreadConstraints[0].topologyKey=zone",
        "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
    ],
}
REFUSED = {
    "replicas: with journal.kind=sqlite": [*PLAINTEXT, "replicas=2"],
    "journal.existingSecret: journal.kind=postgresql needs": [
        *PLAINTEXT,
        "journal.kind=postgresql",
        "blobs.url=s3://bucket",
    ],
    "journal.existingSecret is set and": [*PLAINTEXT, "journal.existingSecret=journal"],
    "blobs.url: with journal.kind=postgresql": [*PLAINTEXT, *SHARED[:2]],
    "blobs.url and walrus.publisherUrls": [
        *PLAINTEXT,
        "blobs.url=s3://bucket",
        "walrus.publisherUrls={https://a.example}",
    ],
    "walrus: give both": [*PLAINTEXT, "walrus.publisherUrls={https://a.example}"],
    "keys.existingSecret: everybody": [
        *PLAINTEXT,
        "walrus.publisherUrls={https://a.example}",
        "walrus.aggregatorUrls={https://c.example}",
    ],
    "tls.clientCaSecret is set and": [*PLAINTEXT, "tls.clientCaSecret=ca"],
    "tls.existingSecret: give": ["replicas=1"],
    "tokens.existingSecret: everyone": ["tls.existingSecret=tls"],
    "at '/replicas'": [*PLAINTEXT, "replicas=many"],
    "additional properties 'replica'": [*PLAINTEXT, "replica=2"],
}


def flags(values: list[str]) -> list[str]:
    return [flag for value in values for flag in ("--set", value)]


def rendered(tool: Tool, values: list[str]) -> dict[str, Any]:
    """Return what the chart makes of values, by kind; the last of each."""
    done = tool("helm", "template", "agents", CHART, *flags(values))
    assert done.returncode == 0, done.stderr
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(done.stdout) if manifest}


@pytest.mark.parametrize("case", RENDERED)
def test_kubernetes_knows_what_is_rendered(tool: Tool, tmp_path: Path, case: str) -> None:
    done = tool("helm", "template", "agents", CHART, *flags(RENDERED[case]))
    assert done.returncode == 0, done.stderr
    file = tmp_path / "rendered.yaml"
    file.write_text(done.stdout, "utf-8")
    for version in VERSIONS:
        done = tool("kubernetes-validate", "-k", version, "--strict", str(file))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", RENDERED)
def test_the_server_takes_the_settings(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    made = rendered(tool, RENDERED[case])
    pod = made["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    box = image()
    for name, value in box.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TUSKPOINT_JOURNAL", "")
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "postgresql://db/a"))
    settings = command_line.from_flags({})
    assert pod["terminationGracePeriodSeconds"] - settings.drain_grace == STOP_SECONDS - 30
    assert pod["securityContext"]["runAsUser"] == int(box.user.partition(":")[0])
    listened = [box.port]
    if settings.http_listen:
        listened.append(split_address(settings.http_listen, "--http-listen")[1])
    assert [port["containerPort"] for port in container["ports"]] == listened
    offered = made["Service"]["spec"]["ports"]
    assert [port["port"] for port in offered] == listened
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["data"] == box.volume
    volumes = {volume["name"] for volume in pod["volumes"]}
    claims = made["StatefulSet"]["spec"].get("volumeClaimTemplates", [])
    assert mounts.keys() == volumes | {claim["metadata"]["name"] for claim in claims}
    assert bool(claims) != bool(settings.journal)
    tls = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    files = (*tls, settings.tokens, settings.key_file)
    assert {str(file.parent) for file in files if file} == set(mounts.values()) - {
        box.volume,
        "/tmp",
    }


@pytest.mark.parametrize(
    ("case", "probe"),
    [("one server", "grpc"), ("three servers", "exec"), ("client certificates", "tcpSocket")],
)
def test_a_probe_can_reach_the_server(tool: Tool, case: str, probe: str) -> None:
    """Those of Kubernetes speak no TLS, and the server's own shows its own certificate."""
    spec = rendered(tool, RENDERED[case])["StatefulSet"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    for kind in ("startupProbe", "readinessProbe"):
        assert probe in container[kind]
    if probe == "exec":
        assert container["readinessProbe"]["exec"]["command"] == image().health


def test_only_several_servers_have_a_budget_of_disruptions(tool: Tool) -> None:
    assert "PodDisruptionBudget" in rendered(tool, RENDERED["three servers"])
    assert "PodDisruptionBudget" not in rendered(tool, RENDERED["one server"])


@pytest.mark.parametrize("problem", REFUSED)
def test_values_that_cannot_work_are_refused(tool: Tool, problem: str) -> None:
    done = tool("helm", "template", "agents", CHART, *flags(REFUSED[problem]))
    assert done.returncode != 0
    assert problem in done.stderr


def test_helm_finds_nothing(tool: Tool) -> None:
    done = tool("helm", "lint", "--strict", CHART, *flags(PLAINTEXT))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_notes_name_the_target_of_all_servers(tool: Tool) -> None:
    headless = rendered(tool, PLAINTEXT)["Service"]["metadata"]["name"]
    done = tool("helm", "install", "agents", CHART, "--dry-run=client", *flags(PLAINTEXT))
    assert done.returncode == 0, done.stderr
    assert f" dns:///{headless}.default.svc.cluster.local:{image().port}\n" in done.stdout
