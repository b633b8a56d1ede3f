"""Items of stores are audited like checkpoints."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tuskpoint import AsyncClient, ItemChange
from tuskpoint_server.commands import serve

if TYPE_CHECKING:
    from tests.integration.cli.audit.conftest import Run
    from tuskpoint_server.config.settings import Config


async def test_a_catalog_with_items_passes(config: Config, run: Run, tmp_path: Path) -> None:
    async with (
        serve.running_server(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.save("t", {"x": 1})
        gone, kept = (("a",), "gone"), (("a", "b/c"), "kept")
        await client.put_items([ItemChange(*gone, {"x": 1}), ItemChange(*kept, {"x": 2}, ttl_s=60)])
        await client.flush()
        await client.put_items([ItemChange(*gone)])
        await client.flush()
        catalog = (await client.status()).catalog
    assert catalog is not None
    report = tmp_path / "report.json"
    ended = await asyncio.to_thread(
        run,
        *("catalog", f"{catalog.blob_id}:{catalog.sha256}", "--blob-dir"),
        *(str(config.blob_directory), "--report", str(report)),
    )
    assert (ended.code, ended.errors) == (0, "")
    findings = json.loads(report.read_text())["findings"]
    assert findings["summary"]["checkpoints"]["pass"] == 2
    facts = findings["facts"]
    assert (facts["live_threads"], facts["item_namespaces"]) == (1, 1)
    assert "1 thread, 0 snapshots, 1 namespace of items, 0 deleted threads" in ended.out


async def test_effects_of_a_bundle_are_called_effects(
    config: Config, run: Run, tmp_path: Path
) -> None:
    async with (
        serve.running_server(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.save("t", {"x": 1})
        begun = await client.begin_effect("t", "charge")
        await client.complete_effect("t", "charge", idempotency_key=begun.idempotency_key)
        handed_off = await client.handoff("t")
    descriptor, text = tmp_path / "descriptor.json", tmp_path / "report.txt"
    descriptor.write_text(json.dumps(handed_off.as_dict()))
    ended = await asyncio.to_thread(
        run,
        *("descriptor", str(descriptor), "--blob-dir", str(config.blob_directory)),
        *("--text", str(text)),
    )
    assert (ended.code, ended.errors) == (0, "")
    shown = text.read_text("utf-8")
    assert f"PASS       effect 't' '{hashlib.sha256(b'charge').hexdigest()}'" in shown
    assert "x00" not in shown
