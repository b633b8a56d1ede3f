"""Importing the package loads little, and a missing extra says how to install it."""

from __future__ import annotations

import pytest

from tests.unit.client.package.programs import run


@pytest.mark.parametrize(
    "statement",
    [
        "import tuskpoint",
        "import tuskpoint.v1",
        "from tuskpoint import NotFound, CheckpointRecord, __version__",
        "import tuskpoint.v1.checkpoint_pb2",
    ],
)
def test_importing_loads_neither_grpc_nor_langgraph(statement: str) -> None:
    program = f"""
        import sys
        {statement}
        print([name for name in ("grpc", "langgraph", "langchain_core") if name in sys.modules])
    """
    assert run(program) == "[]"


def test_the_clients_need_no_langgraph() -> None:
    program = """
        import sys
        from tuskpoint import AsyncClient, Client
        print("langgraph" in sys.modules, "grpc" in sys.modules)
    """
    assert run(program) == "False True"


def test_the_saver_without_langgraph_names_the_package_to_install() -> None:
    program = """
        import sys

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("langgraph", "langchain_core"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Absent())
        try:
            from tuskpoint import TuskPointSaver
        except ImportError as error:
            print(error)
    """
    assert "pip install 'tuskpoint[langgraph]'" in run(program)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    import tuskpoint

    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = tuskpoint.Clint
    assert set(tuskpoint.__all__) <= set(dir(tuskpoint))
    assert all(getattr(tuskpoint, name) is not None for name in tuskpoint.__all__)


@pytest.mark.parametrize("module", ["aio", "effects", "errors", "testing"])
def test_a_module_needs_no_import_of_its_own(module: str) -> None:
    assert run(f"import tuskpoint; print(tuskpoint.{module}.__name__)") == f"tuskpoint.{module}"


def test_calls_work_without_opentelemetry() -> None:
    program = """
        import sys

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "opentelemetry":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Absent())
        from tuskpoint import Client, Unavailable
        try:
            Client("127.0.0.1:1", timeout_s=0.2).info()
        except Unavailable as error:
            print(error.status)
    """
    assert run(program) == "UNAVAILABLE"
