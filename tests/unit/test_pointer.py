"""Each tenant's newest catalog is named by a file of its own."""

from __future__ import annotations

from pathlib import Path

from tuskpoint_server.archive.pointer import Pointer


def test_tenants_do_not_overwrite_one_another_whatever_their_names(tmp_path: Path) -> None:
    pointer = Pointer(tmp_path / "catalog")
    tenants = ("part", "default", "acme", "acme-part")
    for tenant in tenants:
        pointer.write(tenant, f"blob of {tenant}")
    for tenant in tenants:
        assert pointer.path(tenant).read_text() == f"blob of {tenant}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "catalog",
        "catalog.acme",
        "catalog.acme-part",
        "catalog.part",
    ]
