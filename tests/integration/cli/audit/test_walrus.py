"""Quilts on an emulated Walrus can be audited over HTTP after their server is gone."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.cli.audit import kit
from tests.integration.cli.audit.conftest import Run
from tests.integration.cli.audit.kit import COPY, LONG, SHORT, House
from tests.kit.servers.processes import WalrusProcess
from tuskpoint.audit.aggregator import AggregatorSource
from tuskpoint.audit.formats import sealed
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.keys import of_text
from tuskpoint.audit.verdicts import Verdict, counted

STEPS = 20
"""Checkpoints of the long thread."""

OTHERS = 9
"""Checkpoints of the short thread, its fork and copy, a snapshot of two threads, and an offer."""


@pytest.fixture(scope="module")
def walrus() -> Iterator[WalrusProcess]:
    with WalrusProcess() as running:
        yield running


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, walrus: WalrusProcess) -> House:
    """The sealed blobs of a stopped server on Walrus."""
    return kit.left_behind(tmp_path_factory.mktemp("audited"), walrus.settings, STEPS)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, walrus: WalrusProcess) -> None:
    """Give the server's keys to commands."""
    monkeypatch.setenv("TUSKPOINT_KEYS", walrus.settings["TUSKPOINT_KEYS"])


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without pauses."""
    defaults: Any = AggregatorSource.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "sleep", kit.no_pause())


@pytest.fixture
async def source(walrus: WalrusProcess) -> AggregatorSource:
    return AggregatorSource([walrus.url])


async def test_a_catalog_leads_to_all_that_was_certified(
    left: House, source: AggregatorSource
) -> None:
    audit = await kit.audited_catalog(source, left.catalog)
    assert audit.result == "PASS"
    assert audit.of(LONG) == dict.fromkeys(left.ids[LONG], "PASS")
    assert audit.of(SHORT) == dict.fromkeys(left.ids[SHORT], "PASS")
    assert list(audit.of(COPY).values()) == ["PASS"]
    assert counted(audit.findings.items)["pass"] == STEPS + OTHERS
    blobs = [(item, blob) for item in audit.findings.items for blob in item.blobs]
    assert all(bool(blob.identifier) == (item.kind != "bundle") for item, blob in blobs)
    await source.close()


async def test_a_quilt_alone_leads_to_its_catalog_without_a_pass(
    left: House, source: AggregatorSource
) -> None:
    audit = await kit.audited_catalog(source, Location(left.catalog.blob_id), (SHORT,))
    assert audit.result == "UNPINNED"
    assert audit.of(SHORT) == dict.fromkeys(left.ids[SHORT], "PASS")
    pinned = Location(left.catalog.blob_id, "", left.catalog.sha256)
    assert (await kit.audited_catalog(source, pinned, (SHORT,))).result == "PASS"
    await source.close()


async def test_a_descriptor_leads_to_a_blob_of_its_own(
    left: House, source: AggregatorSource
) -> None:
    audit = await kit.audited_descriptor(source, left.handoff)
    assert audit.result == "PASS"
    assert audit.of(SHORT) == {left.ids[SHORT][1]: "PASS"}
    await source.close()


async def test_a_patch_is_read_by_its_own_id_too(
    left: House, source: AggregatorSource, walrus: WalrusProcess
) -> None:
    async with httpx.AsyncClient(base_url=walrus.url, trust_env=False) as http:
        answer = await http.get(f"/v1/quilts/{left.catalog.blob_id}/patches")
    [patch_id] = [
        patch["patch_id"]
        for patch in answer.json()
        if patch["identifier"] == left.catalog.identifier
    ]
    audit = await kit.audited_catalog(source, Location(patch_id, "", left.catalog.sha256), (LONG,))
    assert audit.findings.root.verdict is Verdict.PASS
    assert (await kit.audited_catalog(source, Location(patch_id), (LONG,))).result != "PASS"
    await source.close()


# --- the command as people run it ------------------------------------------------------


def test_reports_can_be_compared(
    left: House,
    walrus: WalrusProcess,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, text = tmp_path / "report.json", tmp_path / "report.txt"
    catalog = left.catalog
    done = run(
        *("catalog", "--sha256", catalog.sha256, "--aggregator", walrus.url),
        *("--report", str(report), "--text", str(text), "--", catalog.blob_id),
    )
    assert (done.code, done.errors) == (0, "")
    assert done.out.startswith(f"Audit of catalog {catalog.blob_id}/")
    assert ": PASS" in done.out
    written = json.loads(report.read_text())
    assert written["source"]["places"] == [walrus.url]
    assert written["findings"]["summary"]["checkpoints"]["pass"] == STEPS + OTHERS
    assert left.ids[LONG][0] in text.read_text()

    again = tmp_path / "again.json"
    monkeypatch.setenv("WALRUS_AGGREGATOR_URL", f"http://127.0.0.1:1, {walrus.url}")
    named = f"{catalog.blob_id}:{catalog.sha256}"
    assert run("catalog", "--report", str(again), "--", named).code == 0
    done = run("compare", str(report), str(again), "--json")
    assert done.code == 0
    assert json.loads(done.out)["same"] is True

    again.write_text(again.read_text().replace('"PASS"', '"FAIL"', 1))
    done = run("compare", str(report), str(again))
    assert done.code == 6
    assert "are not those that its digest was made of" in done.out


def test_a_descriptor_comes_by_a_pipe_and_no_server_is_needed(
    left: House, walrus: WalrusProcess
) -> None:
    done = kit.run_command(
        *("audit", "descriptor", "-", "--aggregator", walrus.url, "--json"),
        stdin=left.handoff.to_json(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["findings"]["result"] == "PASS"


def test_a_manifest_is_named_as_a_catalog_is(left: House, walrus: WalrusProcess, run: Run) -> None:
    at, source = left.manifest, ("--aggregator", walrus.url)
    for arguments in (
        ("--sha256", at.sha256, "--", at.blob_id),
        ("--", f"{at.blob_id}:{at.sha256}"),
    ):
        done = run("manifest", *source, *arguments)
        assert (done.code, done.errors) == (0, ""), done.out
        assert "3 pass" in done.out
    assert run("manifest", *source, "--", at.blob_id).code == 4
    assert run("manifest", *source, "--sha256", "0" * 64, "--", at.blob_id).code == 6


def test_each_result_has_its_code(
    left: House, walrus: WalrusProcess, run: Run, tmp_path: Path
) -> None:
    catalog = left.catalog
    source = ("--aggregator", walrus.url)
    head = tmp_path / "head.json"
    head.write_text(json.dumps({"blob_id": catalog.blob_id, "sha256": catalog.sha256}))
    nowhere = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    pinned = f"{catalog.blob_id}:{catalog.sha256}"
    for code, arguments in (
        (0, ("catalog", *source, "--history", "2", "--thread", SHORT, "--", pinned)),
        (4, ("catalog", *source, "--thread", SHORT, "--", catalog.blob_id)),
        (6, ("catalog", *source, "--sha256", "0" * 64, "--", catalog.blob_id)),
        (6, ("catalog", *source, "--", nowhere)),
        (6, ("manifest", *source, "--", f"{catalog.blob_id}/{catalog.identifier}")),
        (3, ("catalog", *source, "--thread", "nobody", "--", catalog.blob_id)),
        (2, ("catalog", "--", catalog.blob_id)),
        (2, ("catalog", *source, "not-an-id")),
        (2, ("catalog", "--blob-dir", str(tmp_path / "nowhere"), "--", catalog.blob_id)),
        (2, ("catalog", "--blob-dir", str(tmp_path), *source, "--", catalog.blob_id)),
        (2, ("catalog", *source, "--report", str(tmp_path), "--", catalog.blob_id)),
        (2, ("manifest", *source, str(head))),
        (2, ("descriptor", str(head), *source)),
        (2, ("compare", str(head), str(head))),
    ):
        done = run(*arguments)
        assert done.code == code, (arguments, done)
        assert done.errors.count("\n") <= 1


def test_a_source_that_cannot_be_read_is_neither_a_pass_nor_a_failure(
    left: House, walrus: WalrusProcess, run: Run
) -> None:
    walrus.strike("get_patch", 1.0, kind="refuse", status=451)
    try:
        name = f"{left.catalog.blob_id}:{left.catalog.sha256}"
        done = run("catalog", "--aggregator", walrus.url, "--", name)
    finally:
        walrus.calm()
    assert done.code == 5
    assert ": INCOMPLETE" in done.out


# --- sealed blobs ----------------------------------------------------------------------


async def test_without_the_key_the_root_is_compared_and_nothing_is_opened(
    left: House, source: AggregatorSource
) -> None:
    audit = await kit.audited_catalog(source, left.catalog, unwrap=None)
    root = audit.findings.root
    assert (audit.result, root.verdict) == ("INCOMPLETE", Verdict.UNREADABLE)
    assert root.actual_sha256 == left.catalog.sha256
    assert "no key was given" in root.reason
    assert audit.of(SHORT) == {}
    await source.close()


@pytest.mark.parametrize(
    ("key", "tenant", "problem"),
    [
        (bytes(32), "default", "sealed it, and only"),
        (bytes(range(32)), "another", "does not open it for tenant 'another'"),
    ],
)
async def test_a_wrong_key_opens_nothing(
    left: House, source: AggregatorSource, key: bytes, tenant: str, problem: str
) -> None:
    unwrap = of_text(base64.b64encode(key).decode(), tenant)
    audit = await kit.audited_descriptor(source, left.handoff, unwrap=unwrap)
    assert audit.result == "INCOMPLETE"
    assert problem in audit.findings.root.reason
    await source.close()


async def test_a_descriptor_with_a_key_needs_no_other(
    left: House, source: AggregatorSource
) -> None:
    location = Location(left.handoff.blob_id, "", left.handoff.blob_sha256)
    data = (await source.fetch(location, 1 << 20)).data
    key = kit.KEYS(sealed.wrapped_key(data)).hex()
    descriptor = kit.changed(left.handoff, key=key)
    audit = await kit.audited_descriptor(source, descriptor, unwrap=None)
    assert audit.result == "PASS"
    assert key not in json.dumps(audit.findings.as_json())
    other = kit.changed(left.handoff, key="0" * 64)
    audit = await kit.audited_descriptor(source, other, unwrap=None)
    assert audit.result == "FAIL"
    assert "does not open it" in audit.findings.root.reason
    await source.close()


async def test_the_hash_of_a_hand_off_to_a_recipient_is_checked_without_a_key(
    left: House, source: AggregatorSource
) -> None:
    descriptor = kit.changed(left.handoff, sealed_key="YWdl")
    audit = await kit.audited_descriptor(source, descriptor, unwrap=None)
    assert (audit.result, audit.findings.root.verdict) == ("INCOMPLETE", Verdict.UNREADABLE)
    assert audit.findings.root.actual_sha256 == left.handoff.blob_sha256
    await source.close()


def test_the_blobs_of_a_report_are_checked_without_a_key(
    left: House,
    walrus: WalrusProcess,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TUSKPOINT_KEYS")
    keys, report, blobs = (tmp_path / name for name in ("keys", "report.json", "blobs.json"))
    keys.touch(0o600)
    keys.write_text(base64.b64encode(bytes(range(32))).decode())
    source = ("--aggregator", walrus.url)
    named = f"{left.catalog.blob_id}:{left.catalog.sha256}"
    done = run(
        *("catalog", *source, "--sealing-keys", str(keys), "--report", str(report), "--", named)
    )
    assert (done.code, done.errors) == (0, ""), done.out
    done = run("blobs", str(report), *source, "--json")
    blob_findings = json.loads(done.out)["findings"]
    assert (done.code, blob_findings["result"]) == (0, "PASS")
    findings = json.loads(report.read_text())["findings"]
    assert blob_findings["summary"]["blobs"] == findings["summary"]["blobs"]

    listed = [blob for item in findings["items"] for blob in item["blobs"]]
    blobs.write_text(json.dumps(listed))
    assert run("blobs", str(blobs), *source).code == 0
    listed[-1]["expected_sha256"] = "0" * 64
    blobs.write_text(json.dumps(listed))
    assert run("blobs", str(blobs), *source).code == 6
    listed[-1]["role"] = "\x1b[2J"
    blobs.write_text(json.dumps(listed))
    for content in (blobs.read_text(), "[]", "{}", "3", "[3]"):
        blobs.write_text(content)
        done = run("blobs", str(blobs), *source)
        assert (done.code, done.errors.count("\n")) == (2, 1), done


def test_a_command_opens_roots_and_says_why_it_cannot(
    left: House, walrus: WalrusProcess, run: Run, tmp_path: Path
) -> None:
    command = tmp_path / "keys.py"
    command.write_text(
        "import base64, os, sys\n"
        "from tuskpoint.audit.keys import of_text\n"
        "assert sys.argv[1:] == ['unwrap']\n"
        "keys = base64.b64encode(bytes(range(32))).decode()\n"
        "unwrap = of_text(keys, os.environ['TUSKPOINT_TENANT'])\n"
        "print(base64.b64encode(unwrap(base64.b64decode(sys.stdin.read()))).decode())\n"
    )
    named = f"{left.catalog.blob_id}:{left.catalog.sha256}"
    arguments = ("--aggregator", walrus.url, "--thread", SHORT, "--", named)
    opening = f"{sys.executable} {command}"
    assert run("catalog", "--sealing-command", opening, *arguments).code == 0
    failing = f"{sys.executable} -c 'raise SystemExit(\"no such key\")'"
    done = run("catalog", "--sealing-command", failing, *arguments)
    assert done.code == 5
    assert "it said no such key" in done.out
    keys = tmp_path / "keys"
    keys.touch(0o600)
    for content, problem in (("AAAA", "is not 32 bytes"), ("# none", "it has no key")):
        keys.write_text(content)
        done = run("catalog", "--sealing-keys", str(keys), *arguments)
        assert (done.code, problem in done.errors) == (2, True)
    keys.chmod(0o604)
    done = run("catalog", "--sealing-keys", str(keys), *arguments)
    assert (done.code, "others can read it (mode 0604); chmod 600" in done.errors) == (2, True)
    secret = walrus.url.replace("//", "//me:secret@")
    done = run("catalog", "--aggregator", secret, *arguments[2:])
    assert (done.code, "set WALRUS_AGGREGATOR_URL" in done.errors) == (2, True)
    assert "--aggregator has a password" in done.errors
    assert "secret" not in done.errors
