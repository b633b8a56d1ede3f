"""All that a server stores is sealed, from the first save to its adoption on another server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.command_line.kit import run
from tests.integration.conftest import RefusedProgram
from tests.kit.servers.processes import FLUSH_OFTEN, ServerEndedError, ServerProcess
from tuskpoint import Client
from tuskpoint.errors import PreconditionFailed, Unavailable
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.core import process

SECRET = "xylophone"  # occurs in everything that an agent may write


def make_keys(path: Path) -> Path:
    assert tuskpoint_server(["keys", "create", str(path)]) == 0
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return make_keys(tmp_path / "tuskpoint.keys")


def settings(keys: Path, blobs: Path, **more: str) -> dict[str, str]:
    sealed = {"TUSKPOINT_KEY_FILE": str(keys), "TUSKPOINT_BLOB_DIR": str(blobs)}
    return {**FLUSH_OFTEN, **sealed, **more}


@pytest.fixture
def server(tmp_path: Path, keys: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "one", settings(keys, tmp_path / "blobs")) as running:
        running.start()
        yield running


def fill(client: Client) -> str:
    """Save a thread with the secret in every field; return its latest checkpoint."""
    known: dict[str, Any] = {
        "metadata": {SECRET: SECRET},
        "summary": f"Played the {SECRET}.",
        "label": SECRET,
        "agent_id": SECRET,
    }
    first = client.save(f"thread-{SECRET}", {SECRET: SECRET * 2000}, **known)
    client.save(f"other-{SECRET}", {"big": os.urandom(1 << 16).hex() + SECRET})
    client.fork(f"thread-{SECRET}", None, f"fork-{SECRET}")
    client.flush()
    return str(first)


def stored(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def catalog_of(server: ServerProcess) -> str:
    return (server.data_dir / "catalog").read_text("ascii").strip()


def recover(keys: Path, server: ServerProcess, blobs: Path, data_dir: Path) -> int:
    named = ["--catalog", catalog_of(server), "--data-dir", str(data_dir)]
    return tuskpoint_server(["recover", *named, "--blob-dir", str(blobs), "--key-file", str(keys)])


def test_nothing_that_an_agent_wrote_can_be_found_in_what_is_stored(
    server: ServerProcess, tmp_path: Path
) -> None:
    with Client(server.target) as client:
        fill(client)
        client.handoff(f"thread-{SECRET}")
    searched = [*stored(tmp_path / "blobs"), *stored(server.data_dir / "cache")]
    assert len(searched) >= 2
    for path in searched:
        assert SECRET.encode() not in path.read_bytes(), path


def test_a_catalog_and_the_key_file_are_enough_to_recover(
    server: ServerProcess, keys: Path, tmp_path: Path
) -> None:
    blobs = tmp_path / "blobs"
    with Client(server.target) as client:
        checkpoint_id = fill(client)
    assert server.stop() == 0
    with ServerProcess(tmp_path / "two", settings(keys, blobs)) as second:
        assert recover(keys, server, blobs, second.data_dir) == 0
        second.start()
        with Client(second.target) as client:
            checkpoint = client.load(f"fork-{SECRET}", checkpoint_id)
            assert checkpoint is not None
            assert checkpoint.state == {SECRET: SECRET * 2000}
            assert client.verify(f"thread-{SECRET}").ok


def test_another_key_or_none_opens_nothing(
    server: ServerProcess,
    tmp_path: Path,
    refused_program: RefusedProgram,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Client(server.target) as client:
        fill(client)
    assert server.stop() == 0
    other = make_keys(tmp_path / "other.keys")
    capsys.readouterr()
    common = ["--data-dir", str(tmp_path / "new"), "--blob-dir", str(tmp_path / "blobs")]
    named = ["recover", "--catalog", catalog_of(server), *common]
    code, line = refused_program(*named)
    assert (code, "has no key provider" in line) == (process.EXIT_ARCHIVE, True)
    code, line = refused_program(*named, "--key-file", str(other))
    assert (code, "was wrapped by key" in line) == (process.EXIT_ARCHIVE, True)
    here = ["--data-dir", str(server.data_dir), "--blob-dir", str(tmp_path / "blobs")]
    code, line = refused_program(*here)
    assert (code, "give the one that sealed it" in line) == (process.EXIT_ARCHIVE, True)
    code, line = refused_program(*here, "--key-file", str(other))
    assert (code, "was wrapped by key" in line) == (process.EXIT_ARCHIVE, True)


def test_a_key_is_replaced_without_writing_a_blob_again(
    server: ServerProcess, keys: Path, tmp_path: Path
) -> None:
    blobs = tmp_path / "blobs"
    with Client(server.target) as client:
        checkpoint_id = fill(client)
    before = {path: path.read_bytes() for path in stored(blobs)}
    old = keys.read_text("ascii")
    assert server.stop() == 0
    assert tuskpoint_server(["keys", "rotate", str(keys)]) == 0
    server.start()
    with Client(server.target) as client:
        client.flush()
    assert server.stop() == 0
    keys.write_text(keys.read_text("ascii").removesuffix(old), "ascii")
    assert {path: path.read_bytes() for path in before} == before
    with ServerProcess(tmp_path / "two", settings(keys, blobs)) as second:
        assert recover(keys, server, blobs, second.data_dir) == 0
        second.start()
        with Client(second.target) as client:
            assert client.load(f"thread-{SECRET}", checkpoint_id) is not None


def test_a_hand_off_opens_with_its_key_or_for_its_recipient_and_only_so(
    server: ServerProcess, keys: Path, tmp_path: Path
) -> None:
    with Client(server.target) as client:
        fill(client)
        closed = client.handoff(f"thread-{SECRET}")
        with_key = client.handoff(f"thread-{SECRET}", include_key=True)
        assert (closed.key, with_key.blob_id) == ("", closed.blob_id)
        assert client.adopt(closed, "of the same keys").verified
    theirs, identity = make_keys(tmp_path / "their.keys"), tmp_path / "identity"
    assert tuskpoint_server(["keys", "identity", str(identity)]) == 0
    variables = settings(theirs, tmp_path / "blobs", TUSKPOINT_IDENTITY=str(identity))
    with ServerProcess(tmp_path / "two", variables) as second:
        second.start()
        [public] = run(second.target, "status", "--json").object["recipients"]
        assert f"recipient   {public}\n" in run(second.target, "status").out
        sent = run(server.target, "handoff", f"thread-{SECRET}", "--recipient", public)
        assert "sealed_key" in sent.object
        assert run(second.target, "adopt", "--as", "sealed to us", given=sent.out).code == 0
        with Client(second.target) as client:
            with pytest.raises(PreconditionFailed, match="ask the sender"):
                client.adopt(closed, "in vain")
            assert client.adopt(with_key.to_json(), "ours").verified
            for thread_id in ("ours", "sealed to us"):
                checkpoint = client.load(thread_id)
                assert checkpoint is not None
                assert checkpoint.state == {SECRET: SECRET * 2000}


def test_keys_that_cannot_be_used_stop_the_start(
    keys: Path, tmp_path: Path, refused_program: RefusedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    walrus = [
        "--walrus-publisher-url",
        "http://[::1]:1",
        "--walrus-aggregator-url",
        "http://[::1]:1",
    ]
    broken = tmp_path / "broken.keys"
    broken.write_text("no key", "ascii")
    for arguments, said in (
        (walrus, "everybody can read what is on Walrus"),
        (["--key-file", str(tmp_path / "none")], "No such file"),
        (["--key-file", str(broken)], "key 1 "),
        (["--key-file", str(keys), "--key-command", "true"], "both --key-file and --key-command"),
        (["--key-file", str(keys), "--public"], "both --public and --key-file"),
        (["--key-vault", "t/k", "--key-aws-kms", "k"], "both --key-vault and --key-aws-kms"),
        (["--key-vault", "k"], "--key-vault k cannot be used: a Transit key is named MOUNT/KEY"),
    ):
        code, line = refused_program(*here, *arguments)
        assert (code, said in line) == (process.EXIT_CONFIG, True), line
    monkeypatch.setenv("TUSKPOINT_KEYS", "AAAA")
    code, line = refused_program(*here)
    assert (code, "TUSKPOINT_KEYS cannot be used: key 1 has 3 bytes" in line) == (
        process.EXIT_CONFIG,
        True,
    )


def test_a_key_file_is_not_overwritten(
    keys: Path, tmp_path: Path, refused_program: RefusedProgram
) -> None:
    before = keys.read_bytes()
    assert keys.stat().st_mode & 0o777 == 0o600
    code, line = refused_program("keys", "create", str(keys))
    assert (code, "is there already" in line) == (process.EXIT_CONFIG, True)
    code, line = refused_program("keys", "rotate", str(tmp_path / "none"))
    assert code == process.EXIT_DIRECTORY
    assert keys.read_bytes() == before
    link = tmp_path / "link"
    link.symlink_to(keys)
    assert tuskpoint_server(["keys", "rotate", str(link)]) == 0
    assert link.is_symlink()
    assert keys.read_bytes().endswith(before)


def test_a_key_provider_that_is_down_delays_certification_only(tmp_path: Path) -> None:
    service = tmp_path / "service"
    key = f"{SECRET}"
    service.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/down ] && {{ echo closed >&2; exit 3; }}\n"
        f"# {key}\ncase $1 in wrap) cat;; unwrap) cat;; esac\n",
        "ascii",
    )
    service.chmod(0o700)
    (tmp_path / "down").touch()
    variables = {**FLUSH_OFTEN, "TUSKPOINT_KEY_COMMAND": str(service)}
    with ServerProcess(tmp_path / "one", variables) as server:
        server.start()
        with Client(server.target) as client, Client(server.target, timeout_s=1.0) as impatient:
            client.save("t", {"x": 1})
            with pytest.raises(Unavailable, match="key provider") as refused:
                impatient.flush()
            assert "closed" in str(refused.value)
            (tmp_path / "down").unlink()
            client.flush()
            assert client.status().certified_checkpoints == 1


def test_a_server_without_its_keys_says_so_in_its_log(tmp_path: Path, keys: Path) -> None:
    with ServerProcess(tmp_path / "one", settings(keys, tmp_path / "blobs")) as server:
        server.start()
        with Client(server.target) as client:
            fill(client)
        assert server.stop() == 0
        keys.unlink()
        with pytest.raises(ServerEndedError, match="cannot be used: No such file"):
            server.start()


HIDDEN = "vibraphone"  # occurs only in values


@pytest.fixture
def sealed(tmp_path: Path, keys: Path) -> Iterator[ServerProcess]:
    """A server that seals its journal too; nothing is evicted from the journal."""
    variables = settings(keys, tmp_path / "blobs", TUSKPOINT_SEAL_JOURNAL="1")
    with ServerProcess(
        tmp_path / "one", {**variables, "TUSKPOINT_JOURNAL_BYTES": "1000000"}
    ) as server:
        server.start()
        yield server


def hide(client: Client) -> None:
    client.save("t", {"plan": HIDDEN, "notes": HIDDEN * 3000}, summary=f"Tuned the {SECRET}.")
    client.flush()


def test_a_sealed_journal_shows_no_value_and_search_says_so(sealed: ServerProcess) -> None:
    with Client(sealed.target) as client:
        hide(client)
        results = client.search_history(SECRET)
        assert [result.thread_id for result in results] == ["t"]
        assert [warning.kind for warning in results.warnings] == ["values_sealed"]
        assert (results[0].content, results[0].truncated) == (f"Tuned the {SECRET}.", True)
        assert client.search_history(HIDDEN) == []
    files = stored(sealed.data_dir)
    assert sealed.data_dir / "journal.db" in files
    assert any(SECRET.encode() in path.read_bytes() for path in files)
    assert not any(HIDDEN.encode() in path.read_bytes() for path in files)


def test_a_sealed_journal_opens_with_its_key_after_a_rotation(
    sealed: ServerProcess,
    keys: Path,
    tmp_path: Path,
    refused_program: RefusedProgram,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Client(sealed.target) as client:
        hide(client)
    assert sealed.stop() == 0
    capsys.readouterr()
    here = ["--data-dir", str(sealed.data_dir), "--blob-dir", str(tmp_path / "blobs")]
    code, line = refused_program(*here, "--key-file", str(keys))
    assert (code, "it is sealed: start with --seal-journal" in line) == (process.EXIT_JOURNAL, True)
    code, line = refused_program(*here, "--seal-journal")
    assert (code, "--seal-journal needs a key provider" in line) == (process.EXIT_CONFIG, True)
    old = keys.read_text("ascii")
    assert tuskpoint_server(["keys", "rotate", str(keys)]) == 0
    sealed.start()
    with Client(sealed.target) as client:
        client.flush()
    assert sealed.stop() == 0
    keys.write_text(keys.read_text("ascii").removesuffix(old), "ascii")
    sealed.start()
    with Client(sealed.target) as client:
        checkpoint = client.load("t")
        assert checkpoint is not None
        assert checkpoint.state == {"plan": HIDDEN, "notes": HIDDEN * 3000}
    assert sealed.stop() == 0
    make_keys(tmp_path / "other.keys")
    capsys.readouterr()
    other = ["--seal-journal", "--key-file", str(tmp_path / "other.keys")]
    code, line = refused_program(*here, *other)
    assert (code, "cannot be opened" in line, "was wrapped by key" in line) == (
        process.EXIT_JOURNAL,
        True,
        True,
    )


def test_a_journal_becomes_sealed_by_a_recovery(
    server: ServerProcess, keys: Path, tmp_path: Path
) -> None:
    blobs = tmp_path / "blobs"
    with Client(server.target) as client:
        hide(client)
    assert server.stop() == 0
    variables = settings(keys, blobs, TUSKPOINT_SEAL_JOURNAL="1")
    with ServerProcess(tmp_path / "two", variables) as second:
        named = ["--catalog", catalog_of(server), "--data-dir", str(second.data_dir)]
        named += ["--blob-dir", str(blobs), "--key-file", str(keys), "--seal-journal"]
        assert tuskpoint_server(["recover", *named]) == 0
        second.start()
        with Client(second.target) as client:
            checkpoint = client.load("t")
            assert checkpoint is not None
            assert checkpoint.state["plan"] == HIDDEN
            assert client.save("t", {"plan": HIDDEN + "!"})
        assert not any(HIDDEN.encode() in path.read_bytes() for path in stored(second.data_dir))


def test_an_erased_thread_is_noise_once_the_old_key_is_dropped(
    sealed: ServerProcess,
    keys: Path,
    tmp_path: Path,
    refused_program: RefusedProgram,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blobs = tmp_path / "blobs"
    with Client(sealed.target) as client:
        hide(client)
        client.save("other", {"x": 1})
        client.flush()
    before = catalog_of(sealed)
    copy = tmp_path / "copy.keys"
    shutil.copy(keys, copy)
    here = ["--data-dir", str(sealed.data_dir)]
    capsys.readouterr()
    assert tuskpoint_server(["keys", "list", str(keys), *here]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert "first" in line
    assert line.endswith("the newest catalog of tenant default; the values in the journal")
    with Client(sealed.target) as client:
        client.erase("t")
        assert tuskpoint_server(["keys", "rotate", str(keys)]) == 0
        capsys.readouterr()
        code, line = refused_program("keys", "drop", str(keys), *here)
        assert (code, "nothing is dropped: the newest catalog" in line) == (
            process.EXIT_CONFIG,
            True,
        )
    assert sealed.stop() == 0
    sealed.start()
    with Client(sealed.target) as client:
        client.flush()
        assert tuskpoint_server(["keys", "drop", str(keys), *here]) == 0
        assert "1 keys are dropped" in capsys.readouterr().out
        assert client.load("other") is not None
    assert sealed.stop() == 0

    def rebuilt(name: str, keys: Path, catalog: str) -> int:
        named = ["--catalog", catalog, "--data-dir", str(tmp_path / name)]
        return tuskpoint_server(
            ["recover", *named, "--blob-dir", str(blobs), "--key-file", str(keys)]
        )

    assert rebuilt("who kept the old key", copy, before) == 0
    assert rebuilt("who did not", keys, before) == process.EXIT_ARCHIVE
    assert "was wrapped by key" in capsys.readouterr().err
    assert rebuilt("what is left", keys, catalog_of(sealed)) == 0
