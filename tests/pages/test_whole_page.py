"""The reader of whole pages notices errors of a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import configuration
from tests.pages.every_page import pages, undefined_names, unreadable
from tests.pages.whole_page import WholePage, forking


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forking(tmp_path_factory.mktemp("forks")) as address:
        yield address


def page_of(folder: Path, language: str, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(f"# Page\n\n```{language}\n{text}\n```\n")
    return page


def failures(folder: Path, forks: Path, language: str, text: str) -> list[str]:
    with WholePage(str(page_of(folder, language, text)), folder / "work", forks, {}) as reader:
        reader.follow()
        return reader.failed


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print(undefined)", 1),
        ("import tuskpoint\nprint(tuskpoint.__version__)", 0),
        ("raise SystemExit(3)", 3),
        ("from tuskpoint import Client\nwith Client('127.0.0.1:7390') as client:\n"
         "    client.save('thread', {'a': 1})\n    client.load('other')", 1),
        ("from tuskpoint import Client\nwith Client('127.0.0.1:7390') as client:\n"
         "    client.save('thread', {'a': 1})\n    client.load('thread')", 0),
    ],
)  # fmt: skip
def test_python_runs(text: str, code: int, tmp_path: Path, forks: Path) -> None:
    failed = failures(tmp_path, forks, "python", text)
    assert [line.rpartition(" ")[2] for line in failed] == [f"({code})"] * bool(code)


@pytest.mark.parametrize(
    ("file", "text", "command", "fails"),
    [
        ("one.py", "raise SystemExit(1)", "ls", True),
        ("one.py", "raise SystemExit(1)", "ls one.py", False),
        ("test_one.py", "def test_it():\n    assert False", "ls", True),
        ("test_one.py", "def test_it():\n    assert True", "ls", False),
    ],
)
def test_a_file_that_no_command_names_runs(
    file: str, text: str, command: str, fails: bool, tmp_path: Path, forks: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"**`{file}`**\n\n```python\n{text}\n```\n\n```sh\n{command}\n```\n")
    with WholePage(str(page), tmp_path / "work", forks, {}) as reader:
        reader.follow()
        assert bool(reader.failed) == fails


def test_configuration_with_the_name_of_a_file_is_read(tmp_path: Path, forks: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("**`server.toml`**\n\n```toml\nlisen = 1\n```\n")
    with (
        WholePage(str(page), tmp_path / "work", forks, {}) as reader,
        pytest.raises(Exception, match="lisen"),
    ):
        reader.follow()


@pytest.mark.parametrize(
    "command",
    [
        "tuskpoint status",
        "tuskpoint audit catalog BLOB_ID --blobs s3://my-bucket/tuskpoint",
        "tuskpoint-server --listen 127.0.0.1:7390 --blobs 's3://my-bucket/x?region=eu-west-1'",
        "tuskpoint-server dev --port 7400",
        "tuskpoint-server --walrus-publisher-url URL --walrus-aggregator-url URL",
        "tuskpoint-server recover --data-dir NEW --catalog ID --blobs s3://my-bucket/tuskpoint",
        "tuskpoint-server keys create walrus.keys && ls -l walrus.keys",
        "tuskpoint-walrus --latency 1",
        "tuskpoint-walrus --listen 127.0.0.1:7398 & sleep 2; curl -fs http://127.0.0.1:7398/status",
        "python3 -m venv /opt/tp && /opt/tp/bin/pip install './clients/python[cli]'",
        "make serve ARGS='--port 1'; aws s3 ls; kubectl apply -f -; curl https://host.example/",
        "python - <<'END'\nimport tuskpoint\nEND",
        "echo 1 > /etc/written && cat /etc/written",
    ],
)
def test_a_command_that_is_right_runs(command: str, tmp_path: Path, forks: Path) -> None:
    assert failures(tmp_path, forks, "sh", command) == []


@pytest.mark.parametrize(
    "command",
    [
        "tuskpoint status --colour",
        "tuskpoint audit catalog BLOB_ID --bucket s3://my-bucket/tuskpoint",
        "tuskpoint show no-such-thread",
        "tuskpoint-server --blob s3://my-bucket/x",
        "tuskpoint-server --tls-cert not-there.pem --tls-key not-there.key",
        "tuskpoint-server dev --listen 127.0.0.1:1",
        "tuskpoint-server recover --data-dir NEW --catalogue ID --blobs s3://my-bucket/tuskpoint",
        "tuskpoint-walrus --slow 1",
        "make no-such-target",
        "pip install './clients/python[no-such-extra]'",
        "pip install no-such-package",
        "python -c 'import nothing_of_this_name'",
    ],
)
def test_a_command_that_is_wrong_fails(command: str, tmp_path: Path, forks: Path) -> None:
    assert failures(tmp_path, forks, "sh", command) != []


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("json", "{", "Expecting"),
        ("jsonl", "{}\n{", "Expecting"),
        ("yaml", "replica: 3", "the chart has no value"),
        ("yaml", "ingress: {grpc: {on: true}}", "the chart has no value"),
        ("toml", "lisen = 1", "lisen"),
        ("toml", "[[token]]\nname = 1", "the block"),
        ("toml", "[[retention]]\nname = 1", "the block"),
        ("ini", "a = 1", "no section headers"),
        ("nginx", "listen 443", "listen 443"),
    ],
)
def test_configuration_that_cannot_be_used_is_an_error(
    language: str, text: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=problem):
        configuration.check(language, text, tmp_path)


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("rust", "fn main() {}", "is in 'rust', which no test reads"),
        ("", "# first\ntuskpoint status", "has no language, and a reader would paste: tuskpoint"),
        ("", "A=1 $CHECKOUT/bin/pip install x", "has no language"),
        ("", "agent -> server", ""),
        ("sh", "x" * 101, "has a line of 101 characters"),
        ("text", "x" * 101, ""),
    ],
)
def test_a_block_that_no_test_reads_is_an_error(
    language: str, text: str, problem: str, tmp_path: Path
) -> None:
    [found] = [*unreadable(page_of(tmp_path, language, text))] or [""]
    assert problem in found
    assert bool(problem) == bool(found)


def test_every_page_with_code_is_listed(tmp_path: Path) -> None:
    (tmp_path / "docs/.hidden").mkdir(parents=True)
    (tmp_path / "plain.md").write_text("# No code\n")
    page_of(tmp_path / "docs", "sh", "ls")
    page_of(tmp_path / "docs/.hidden", "sh", "ls")
    assert pages(tmp_path) == ["docs/page.md"]


def test_undefined_names_are_listed(tmp_path: Path) -> None:
    programs = {"one.py": "print(nobody)\n", "two.py": "x = 1\n", "three.py": "x = \n"}
    found = undefined_names(programs, tmp_path)
    assert [line.partition(":")[0] for line in found] == ["one.py", "three.py"]
    assert "nobody" in found[0]
