"""A bucket can be audited after its servers are gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.audit import kit
from tests.integration.cli.audit.conftest import Run
from tests.integration.cli.audit.kit import House
from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server

STEPS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> House:
    """The blobs of a stopped server in a bucket."""
    settings = {**ENVIRONMENT, "TUSKPOINT_BLOBS": server.url("team")}
    return kit.left_behind(tmp_path_factory.mktemp("audited"), settings, STEPS)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def pinned(left: House) -> tuple[str, str]:
    return ("--", f"{left.catalog.blob_id}:{left.catalog.sha256}")


def test_a_catalog_a_manifest_and_a_hand_off_pass(
    left: House, server: S3Server, run: Run, tmp_path: Path
) -> None:
    source = ("--blobs", server.url("team"))
    report, descriptor = tmp_path / "report.json", tmp_path / "descriptor.json"
    done = run("catalog", *source, "--report", str(report), *pinned(left))
    assert (done.code, done.errors) == (0, ""), done.out
    read = json.loads(report.read_text())
    assert read["source"]["kind"] == "bucket"
    assert read["source"]["places"] == ["s3://bucket/team"]
    assert read["findings"]["summary"]["checkpoints"]["pass"] > STEPS
    at = left.manifest
    assert run("manifest", *source, "--", f"{at.blob_id}:{at.sha256}").code == 0
    descriptor.write_text(left.handoff.to_json())
    assert run("descriptor", *source, str(descriptor)).code == 0


def test_audits_of_a_bucket_and_of_its_files_find_the_same(
    left: House, server: S3Server, run: Run, tmp_path: Path
) -> None:
    for key, blob in server.objects["bucket"].items():
        file = tmp_path / key.removeprefix("team/")
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(blob.data)
    reports = [str(tmp_path / f"{number}.json") for number in range(3)]
    sources = (
        ("--blobs", server.url("team")),
        ("--blob-dir", str(tmp_path)),
        ("--blobs", f"file://{tmp_path}"),
    )
    for source, report in zip(sources, reports, strict=True):
        assert run("catalog", *source, "--report", report, *pinned(left)).code == 0
    for report in reports[1:]:
        assert run("compare", reports[0], report).code == 0


def test_a_changed_byte_fails_and_a_lost_object_is_missing(
    left: House, server: S3Server, run: Run
) -> None:
    source = ("--blobs", server.url("team"))
    name = f"team/{left.handoff.blob_id[:2]}/{left.handoff.blob_id}"
    stored = server.objects["bucket"].pop(name)
    try:
        lost = run("catalog", *source, *pinned(left))
        stored.data = stored.data[:-1] + bytes([stored.data[-1] ^ 1])
        server.objects["bucket"][name] = stored
        damaged = run("catalog", *source, *pinned(left))
    finally:
        stored.data = stored.data[:-1] + bytes([stored.data[-1] ^ 1])
        server.objects["bucket"][name] = stored
    assert (lost.code, "MISSING" in lost.out) == (6, True), lost.out
    assert (damaged.code, "FAIL" in damaged.out) == (6, True), damaged.out
    assert run("catalog", *source, *pinned(left)).code == 0


def test_an_unusable_bucket_is_reported_in_one_line(
    left: House, server: S3Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url("team")
    for source, code in (
        (("--blobs", server.url("elsewhere")), 2),
        (("--blobs", server.url("team", bucket="other")), 2),
        (("--blobs", url.replace("eu-test-1", "us-east-1")), 2),
        (("--blobs", "s3://key:secret@bucket"), 2),
        (("--blobs", "s3://bucket?key=1"), 2),
        (("--blobs", "az://container"), 2),
        (("--blobs", "/srv/blobs"), 2),
        (("--blobs", url, "--blob-dir", "."), 2),
        (("--blobs", "s3://bucket?endpoint=http://127.0.0.1:9"), 5),
    ):
        done = run("catalog", *source, *pinned(left))
        assert (done.code, done.errors.count("\n")) == (code, int(code == 2)), done
        assert "secret" not in done.errors
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "tuskpoint.audit.objects")
    done = run("catalog", "--blobs", url, *pinned(left))
    assert (done.code, "pip install 'tuskpoint[objects]'" in done.errors) == (2, True), done
