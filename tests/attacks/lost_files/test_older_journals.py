"""A journal that is put back to an earlier state more than once."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.attacks.lost_files.test_lost_blobs import Home, catalog_in
from tuskpoint_server.core import process


def test_an_older_journal_is_told_again_before_it_has_certified_anything(tmp_path: Path) -> None:
    """No pointer file names a catalog then; the one that was set aside does."""
    home = Home(tmp_path / "home")
    with home.serving():
        pass
    shutil.copytree(home.data, tmp_path / "kept")
    with home.serving() as client:
        client.save("t", {"n": 1}, durability="certified")
    named, before = home.named, catalog_in(home.data)
    home.roll_back(tmp_path / "kept")
    with home.serving(accept_older_journal=named):
        pass
    with home.serving():  # the journal that was accepted goes on
        pass
    assert not home.pointer.exists()
    home.roll_back(tmp_path / "kept")
    assert f"--accept-older-journal={named}" in home.refused(process.EXIT_JOURNAL)
    with home.serving(accept_older_journal=named) as client:
        client.save("t", {"n": 2}, durability="certified")
    assert catalog_in(home.data)["place"] > before["place"]  # type: ignore[operator]
