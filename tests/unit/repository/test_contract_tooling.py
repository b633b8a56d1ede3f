"""Lint, the committed image and the check of generated code guard the contract."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import contract, stubs

BREAKS = 100


def buf(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [stubs.buf_path(), *arguments],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
    )


def breaking(workspace: Path) -> subprocess.CompletedProcess[str]:
    return buf(workspace, "breaking", "--against", str(stubs.ROOT / contract.IMAGE))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the contract and its rules, without git and without the image."""
    ignored = shutil.ignore_patterns("*.binpb")
    shutil.copytree(stubs.ROOT / "proto", tmp_path / "proto", ignore=ignored)
    shutil.copy(stubs.ROOT / "buf.yaml", tmp_path)
    return tmp_path


def edit(workspace: Path, name: str, old: str, new: str) -> None:
    path = workspace / "proto/tuskpoint/v1" / name
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{name} no longer has exactly one {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_lint_is_clean(workspace: Path) -> None:
    result = buf(workspace, "lint")
    assert (result.returncode, result.stdout) == (0, "")


def test_lint_wants_a_comment_on_everything(workspace: Path) -> None:
    added = "\n\nmessage Uncommented {}\n"
    path = workspace / "proto/tuskpoint/v1/value.proto"
    path.write_text(path.read_text(encoding="utf-8") + added, encoding="utf-8")
    result = buf(workspace, "lint")
    assert result.returncode == BREAKS
    assert 'Message "Uncommented" should have a non-empty comment' in result.stdout


def test_lint_cannot_be_silenced_by_a_comment(workspace: Path) -> None:
    added = "\n\n// buf:lint:ignore MESSAGE_PASCAL_CASE\nmessage not_pascal {}\n"
    path = workspace / "proto/tuskpoint/v1/value.proto"
    path.write_text(path.read_text(encoding="utf-8") + added, encoding="utf-8")
    result = buf(workspace, "lint")
    assert result.returncode == BREAKS
    assert "not_pascal" in result.stdout


def test_nothing_breaks_the_committed_image(workspace: Path) -> None:
    result = breaking(workspace)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "old", "new", "finding"),
    [
        pytest.param(
            "checkpoint_service.proto",
            "  optional string expected_head = 4;\n",
            "",
            'field "4" with name "expected_head" on message "SaveCheckpointRequest"',
            id="a field deleted",
        ),
        pytest.param(
            "checkpoint_service.proto",
            "  optional string expected_head = 4;",
            "  optional bytes expected_head = 4;",
            "changed type",
            id="a type changed",
        ),
        pytest.param(
            "checkpoint_service.proto",
            "  rpc SetLabel(SetLabelRequest) returns (SetLabelResponse);",
            "  rpc SetLabel(SetLabelRequest) returns (stream SetLabelResponse);",
            "SetLabel",
            id="a call made a stream",
        ),
    ],
)
def test_a_breaking_change_is_caught(
    workspace: Path, name: str, old: str, new: str, finding: str
) -> None:
    edit(workspace, name, old, new)
    result = breaking(workspace)
    assert result.returncode == BREAKS, result.stderr
    assert finding in result.stdout


def test_generated_code_that_is_not_current_is_caught(tmp_path: Path) -> None:
    folder = tmp_path / stubs.PYTHON.folder
    shutil.copytree(stubs.ROOT / stubs.PYTHON.folder, folder)
    (folder / "value_pb2.pyi").write_text("# edited by hand\n", encoding="utf-8")
    (folder / "errors_pb2.py").unlink()
    (folder / "gone_pb2.py").write_text("", encoding="utf-8")
    differences = stubs.differences(stubs.PYTHON, tmp_path)
    assert [piece.splitlines()[0] for piece in differences] == [
        "errors_pb2.py: missing",
        "gone_pb2.py: no proto generates it",
        "value_pb2.pyi: differs",
    ]
    assert "-# edited by hand" in differences[2]

    stubs.generate(stubs.PYTHON, tmp_path)
    assert stubs.differences(stubs.PYTHON, tmp_path) == []
    assert not (folder / "gone_pb2.py").exists()


def test_stubs_of_stored_formats_are_python_only(tmp_path: Path) -> None:
    stubs.generate(stubs.PYTHON_STORAGE, tmp_path)
    assert stubs.differences(stubs.PYTHON_STORAGE, tmp_path) == []
    assert "v1/segment_pb2.py" in stubs.committed(stubs.PYTHON_STORAGE, tmp_path)
    others = [name for language in stubs.LANGUAGES for name in stubs.committed(language)]
    assert sorted(name for name in others if "segment" in name) == [
        "v1/segment_pb2.py",
        "v1/segment_pb2.pyi",
        "v1/segment_pb2_grpc.py",
        "v1/segment_pb2_grpc.pyi",
    ]


def test_missing_tools_of_a_language_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(stubs, "LANGUAGES", (stubs.TYPESCRIPT, stubs.GO))
    assert contract.main(["check"]) == 0
    assert capsys.readouterr().out == (
        "clients/typescript/src/gen is left out: node is missing: install Node 20 or newer and run "
        "`make client-typescript`\n"
        "clients/go/tuskpointv1 is left out: go is missing: install Go 1.24 or newer\n"
    )
