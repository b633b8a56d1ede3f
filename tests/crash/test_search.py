"""The server is killed while it indexes; after the restart, a search finds everything
acknowledged."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from tests.kit.messages import channel, save_request
from tests.kit.servers.processes import ServerProcess
from tuskpoint.v1 import search_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub

pytestmark = pytest.mark.crash

SAVES = 60
ROUNDS = 3
AT_ONCE = 50
ID = "1f000000-0000-6000-8000-{:012d}"
SEEN = "step{:04d}"


def save(server: ServerProcess, numbers: range) -> None:
    with grpc.insecure_channel(server.target) as connection:
        stub = CheckpointServiceStub(connection)
        for number in numbers:
            request = save_request(
                ID.format(number),
                [channel("notes")],
                vector=[1.0, number],
            )
            request.checkpoint.summary = f"The agent finished {SEEN.format(number)}"
            stub.SaveCheckpoint(request)


def found_by_words(server: ServerProcess) -> set[str]:
    """Return the results of a search for words once everything is indexed."""
    checkpoint_ids: set[str] = set()
    with grpc.insecure_channel(server.target) as connection:
        stub = SearchServiceStub(connection)
        for first in range(0, ROUNDS * SAVES, AT_ONCE):
            text = " ".join(SEEN.format(number) for number in range(first, first + AT_ONCE))
            request = pb.SearchCheckpointsRequest(text=text, limit=100)
            answer = stub.SearchCheckpoints(request)
            while answer.unindexed_checkpoints:  # The search itself waits for the index.
                answer = stub.SearchCheckpoints(request)
            checkpoint_ids |= {result.ref.checkpoint_id for result in answer.results}
    return checkpoint_ids


def found_by_vector(server: ServerProcess, number: int) -> str:
    """Return the checkpoint nearest to the vector of a save."""
    with grpc.insecure_channel(server.target) as connection:
        answer = SearchServiceStub(connection).SearchCheckpoints(
            pb.SearchCheckpointsRequest(
                vector=pb.QueryVector(values=[1.0, number]), limit=1, metric=pb.SEARCH_METRIC_L2
            )
        )
    (result,) = answer.results
    assert result.distance == 0
    return result.ref.checkpoint_id


def test_everything_acknowledged_is_found_after_kills(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        for turn in range(ROUNDS):
            server.start()
            save(server, range(turn * SAVES, (turn + 1) * SAVES))
            server.kill()
        server.start()
        numbers = range(ROUNDS * SAVES)
        assert found_by_words(server) == {ID.format(number) for number in numbers}
        for number in numbers[::20]:
            assert found_by_vector(server, number) == ID.format(number)
