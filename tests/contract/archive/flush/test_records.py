"""The catalog of a flush leads to settings, labels and merged runs."""

from __future__ import annotations

from tests.kit.archives import House, grow
from tests.kit.drafts import TENANT, draft


async def test_a_setting_is_stored_with_its_change(home: House) -> None:
    await home.journal.save_checkpoint(
        TENANT, draft("a", "", {"x": b"1"}, agent_id="planner", label="begin", summary="It began.")
    )
    await home.flush()
    manifest = await home.manifest()
    assert manifest.setting is not None
    assert manifest.setting.agent_id == "planner"
    assert (manifest.entries["", "a"].record.label) == "begin"
    await home.journal.removal.set_retention(TENANT, "t", 60)
    await home.flush()
    manifest = await home.manifest()
    assert manifest.setting is not None
    assert (manifest.setting.agent_id, manifest.setting.retention_s) == ("planner", 60)


async def test_the_catalog_names_its_predecessor_by_hash(home: House) -> None:
    hashes: list[bytes] = []
    for number in range(20):
        await grow(home, 1, start=number)
        await home.flush()
        known = await home.archive.catalog(TENANT)
        assert known is not None
        assert known.catalog.number == number + 1
        previous = known.catalog.previous
        assert (previous.sha256 if previous else None) == (hashes[-1] if hashes else None)
        hashes.append(known.location.sha256)
    known = await home.archive.catalog(TENANT)
    assert known is not None
    assert len(known.catalog.runs.levels) > 1, "runs were merged"
    assert len((await home.manifest()).entries) == 20
    kinds = dict[str, int](await home.ask("SELECT kind, count(*) FROM members GROUP BY 1"))
    assert kinds["catalog"] == 1, "unneeded values are not kept"
    assert kinds["segment"] == 20
    assert kinds["run"] < 20
