"""The Helm chart renders valid manifests that start, and refuses settings that would lose data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deployment.conftest import Tool
from tests.deployment.files import ROOT, STOP_SECONDS, image
from tuskpoint_server.api.web.probes import LIVE, READY
from tuskpoint_server.config.settings import split_address
from tuskpoint_server.config.sources import from_flags

CHART = str(ROOT / "deploy" / "helm" / "tuskpoint")
FILES = Path(CHART) / "files"
VERSIONS = ("1.27", "1.37")
"""Oldest Kubernetes version of the chart, and newest version that the chart's test knows."""

OPERATOR = "monitoring.coreos.com/"
"""API group of the Prometheus Operator, which is not a part of Kubernetes."""

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
        "signingKey.existingSecret=signing",
        "retention.existingConfigMap=rules",
    ],
    "client certificates": [*SHARED, "tls.existingSecret=tls", "tls.clientCaSecret=ca"],
    "watched from outside": [
        *PLAINTEXT,
        "http.enabled=true",
        "http.origins={https://a.example}",
        "metrics.enabled=true",
        "metrics.podMonitor.enabled=true",
        "metrics.podMonitor.interval=15s",
        "metrics.podMonitor.labels.release=prometheus",
        "metrics.alerts.enabled=true",
        "metrics.alerts.labels.release=prometheus",
        "metrics.dashboard.enabled=true",
        "metrics.dashboard.annotations.grafana_folder=agents",
        "ingress.grpc.enabled=true",
        "ingress.grpc.host=agents.example",
        "ingress.grpc.className=haproxy",
        "ingress.grpc.annotations.a=b",
        "ingress.grpc.tlsSecret=edge",
        "ingress.http.enabled=true",
        "ingress.http.host=console.example",
        "networkPolicy.enabled=true",
        "networkPolicy.from[0].podSelector.matchLabels.role=agent",
        "networkPolicy.from[1].namespaceSelector.matchLabels.name=edge",
        "networkPolicy.from[2].ipBlock.cidr=10.0.0.0/8",
        "extraVolumes[0].name=jwt",
        "extraVolumes[0].secret.secretName=publisher",
        "extraVolumeMounts[0].name=jwt",
        "extraVolumeMounts[0].mountPath=/etc/tuskpoint/jwt",
        "env[0].name=TUSKPOINT_WALRUS_JWT_SECRET_FILE",
        "env[0].value=/etc/tuskpoint/jwt/secret",
    ],
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
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "networkPolicy.enabled=true",
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
    "metrics.podMonitor.enabled is set and": [*PLAINTEXT, "metrics.podMonitor.enabled=true"],
    "ingress.http.enabled is set and": [
        *PLAINTEXT,
        "ingress.http.enabled=true",
        "ingress.http.host=a.example",
    ],
    "ingress.grpc.host: give the name": [*PLAINTEXT, "ingress.grpc.enabled=true"],
    "ingress.grpc.host and ingress.http.host are the same": [
        *PLAINTEXT,
        "http.enabled=true",
        "ingress.grpc.enabled=true",
        "ingress.grpc.host=a.example",
        "ingress.http.enabled=true",
        "ingress.http.host=a.example",
    ],
    "extraVolumes: nothing mounts the volume jwt": [*PLAINTEXT, "extraVolumes[0].name=jwt"],
    "at '/networkPolicy/from/0'": [*PLAINTEXT, "networkPolicy.from[0].pod=a"],
    "at '/metrics/podMonitor/interval'": [*PLAINTEXT, "metrics.podMonitor.interval=soon"],
    "at '/ingress/grpc/host'": [*PLAINTEXT, "ingress.grpc.host=https://a.example"],
    "at '/replicas'": [*PLAINTEXT, "replicas=many"],
    "additional properties 'replica'": [*PLAINTEXT, "replica=2"],
}


def flags(values: list[str]) -> list[str]:
    return [flag for value in values for flag in ("--set", value)]


def manifests(tool: Tool, values: list[str]) -> list[dict[str, Any]]:
    """Return the manifests that the chart renders from values."""
    done = tool("helm", "template", "agents", CHART, *flags(values))
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def rendered(tool: Tool, values: list[str]) -> dict[str, Any]:
    """Return the manifests that the chart renders from values, by kind; the last one of each
    kind."""
    return {manifest["kind"]: manifest for manifest in manifests(tool, values)}


@pytest.mark.parametrize("case", RENDERED)
def test_kubernetes_knows_what_is_rendered(tool: Tool, tmp_path: Path, case: str) -> None:
    known = [
        manifest
        for manifest in manifests(tool, RENDERED[case])
        if not manifest["apiVersion"].startswith(OPERATOR)
    ]
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(known), "utf-8")
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
    settings = from_flags({})
    assert pod["terminationGracePeriodSeconds"] - settings.drain_grace == STOP_SECONDS - 30
    assert pod["securityContext"]["runAsUser"] == int(box.user.partition(":")[0])
    listened = [box.port]
    if settings.http_listen:
        listened.append(split_address(settings.http_listen, "--http-listen")[1])
    offered = made["Service"]["spec"]["ports"]
    assert [port["port"] for port in offered] == listened
    if settings.metrics_listen:
        listened.append(split_address(settings.metrics_listen, "--metrics-listen")[1])
    assert [port["containerPort"] for port in container["ports"]] == listened
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["data"] == box.volume
    volumes = {volume["name"] for volume in pod["volumes"]}
    claims = made["StatefulSet"]["spec"].get("volumeClaimTemplates", [])
    assert mounts.keys() == volumes | {claim["metadata"]["name"] for claim in claims}
    assert bool(claims) != bool(settings.journal)
    tls = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    files = [*tls, settings.tokens, settings.key_file, settings.signing_key]
    files += [settings.retention_file, settings.walrus_jwt_secret_file]
    assert {str(file.parent) for file in files if file} == set(mounts.values()) - {
        box.volume,
        "/tmp",
    }


HTTP = "http.enabled=true"


@pytest.mark.parametrize(
    ("values", "ready", "live"),
    [
        (PLAINTEXT, "grpc", "tcpSocket"),
        ([*PLAINTEXT, HTTP], "HTTP", "HTTP"),
        ([*SHARED, *SECURE], "exec", "tcpSocket"),
        ([*SHARED, *SECURE, HTTP], "HTTPS", "HTTPS"),
        ([*RENDERED["client certificates"], HTTP], "tcpSocket", "tcpSocket"),
    ],
)
def test_a_probe_can_reach_the_server(tool: Tool, values: list[str], ready: str, live: str) -> None:
    """gRPC probes cannot use TLS, no probe has a client certificate, and all accept any server
    certificate."""
    spec = rendered(tool, values)["StatefulSet"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    expected = {"startupProbe": ready, "readinessProbe": ready, "livenessProbe": live}
    for name, kind in expected.items():
        probe = container[name]
        path = LIVE if name == "livenessProbe" else READY
        if kind in ("HTTP", "HTTPS"):
            assert probe["httpGet"] == {"path": path, "port": "http", "scheme": kind}
        elif kind == "exec":
            assert probe["exec"]["command"] == image().health
        else:
            assert kind in probe
        assert len({"exec", "grpc", "httpGet", "tcpSocket"} & probe.keys()) == 1


def test_prometheus_finds_the_pods_and_the_job_of_the_alerts(tool: Tool) -> None:
    """The API of the operator's kinds, monitoring.coreos.com/v1, defines all fields that the chart
    uses."""
    made = rendered(tool, RENDERED["watched from outside"])
    pod = made["StatefulSet"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    monitor = made["PodMonitor"]
    assert monitor["apiVersion"] == made["PrometheusRule"]["apiVersion"] == f"{OPERATOR}v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"] == {
        "jobLabel": "app.kubernetes.io/name",
        "selector": {"matchLabels": pod["metadata"]["labels"]},
        "podMetricsEndpoints": [{"port": "metrics", "interval": "15s"}],
    }
    assert "metrics" in {port["name"] for port in container["ports"]}
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "tuskpoint"
    assert made["PrometheusRule"]["metadata"]["labels"]["release"] == "prometheus"
    alerts = (FILES / "alerts.yaml").read_text("utf-8")
    assert 'up{job="tuskpoint"}' in alerts
    assert made["PrometheusRule"]["spec"] == yaml.safe_load(alerts)


def test_grafana_finds_the_dashboard(tool: Tool) -> None:
    board = rendered(tool, RENDERED["watched from outside"])["ConfigMap"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["metadata"]["annotations"] == {"grafana_folder": "agents"}
    [(name, text)] = board["data"].items()
    assert name == "agents-tuskpoint.json"
    assert text == (FILES / "dashboard.json").read_text("utf-8")


def test_an_ingress_leads_to_a_port_of_the_service(tool: Tool) -> None:
    made = manifests(tool, RENDERED["watched from outside"])
    ingresses = [manifest for manifest in made if manifest["kind"] == "Ingress"]
    [service] = [
        manifest
        for manifest in made
        if manifest["kind"] == "Service" and manifest["spec"].get("type") == "ClusterIP"
    ]
    assert {port["name"] for port in service["spec"]["ports"]} == {"grpc", "http"}
    backends = {}
    for ingress in ingresses:
        [rule] = ingress["spec"]["rules"]
        [path] = rule["http"]["paths"]
        assert path["backend"]["service"]["name"] == service["metadata"]["name"]
        backends[rule["host"]] = path["backend"]["service"]["port"]["name"]
    assert backends == {"agents.example": "grpc", "console.example": "http"}
    assert ingresses[0]["spec"]["ingressClassName"] == "haproxy"
    assert ingresses[0]["metadata"]["annotations"] == {"a": "b"}
    assert ingresses[0]["spec"]["tls"] == [{"hosts": ["agents.example"], "secretName": "edge"}]


def test_pages_of_the_ingress_may_call_the_server(tool: Tool) -> None:
    made = rendered(tool, RENDERED["watched from outside"])
    [container] = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    [origins] = [
        variable["value"]
        for variable in container["env"]
        if variable["name"] == "TUSKPOINT_HTTP_ORIGINS"
    ]
    assert origins == "https://a.example https://console.example"


def test_a_network_policy_names_who_may_connect(tool: Tool) -> None:
    policy = rendered(tool, RENDERED["watched from outside"])["NetworkPolicy"]["spec"]
    calls, metrics = policy["ingress"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [port["port"] for port in calls["ports"]] == ["grpc", "http"]
    assert [*calls["from"]] == [
        {"podSelector": {"matchLabels": {"role": "agent"}}},
        {"namespaceSelector": {"matchLabels": {"name": "edge"}}},
        {"ipBlock": {"cidr": "10.0.0.0/8"}},
    ]
    assert [port["port"] for port in metrics["ports"]] == ["metrics"]
    assert metrics["from"] == [{"namespaceSelector": {}}], "the pods of the cluster"
    [everybody] = rendered(tool, RENDERED["everything else"])["NetworkPolicy"]["spec"]["ingress"]
    assert everybody == {"ports": [{"protocol": "TCP", "port": "grpc"}]}


def test_pods_are_spread_over_zones_and_nodes(tool: Tool) -> None:
    template = rendered(tool, RENDERED["three servers"])["StatefulSet"]["spec"]["template"]
    constraints = template["spec"]["topologySpreadConstraints"]
    keys = [constraint["topologyKey"] for constraint in constraints]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    for constraint in constraints:
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway", "a small cluster runs them too"
        assert constraint["labelSelector"] == {"matchLabels": template["metadata"]["labels"]}


def test_what_needs_an_operator_or_opens_a_port_is_off(tool: Tool) -> None:
    made = rendered(tool, PLAINTEXT)
    assert made.keys() == {"Service", "ServiceAccount", "StatefulSet"}
    [container] = made["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert [port["name"] for port in container["ports"]] == ["grpc"]


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
