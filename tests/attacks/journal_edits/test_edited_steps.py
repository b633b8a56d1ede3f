"""Steps and listings of threads never tell what was changed behind the server's back."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import grpc
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt

from tests.attacks.journal_edits.edited_server import (
    Services,
    ids_of,
    name,
    opened_journal,
    serving,
)
from tests.kit.messages import channel, ref, refused, save_request, write
from tuskpoint.v1 import (
    checkpoint_pb2,
    history_service_pb2,
    step_pb2,
    thread_pb2,
    thread_service_pb2,
    value_pb2,
)
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.config.settings import Config

pytestmark = pytest.mark.usefixtures("database")

STEP = checkpoint_pb2.VIEW_STEP
COUNT = 4
OF_ASKING = f"checkpoint_id = '{name(COUNT - 1)}'"
OF_MIDDLE = f"checkpoint_id = '{name(1)}'"
SERDE = JsonPlusSerializer()


def value(thing: object) -> value_pb2.Value:
    kind, data = SERDE.dumps_typed(thing)
    return value_pb2.Value(type=kind, data=data)


class Running(Services):
    """The services of a server with a thread whose head asks a question."""

    async def grow(self) -> None:
        report = {"usage_metadata": {"input_tokens": 5, "output_tokens": 2}}
        for number in range(COUNT):
            channels = [
                channel("log", b"%d" % number, version=value_pb2.Version(integer=number + 2)),
                channel(
                    "branch:to:agent",
                    version=value_pb2.Version(integer=number + 2),
                    value=value(None),
                ),
            ]
            path = "~__pregel_pull, agent"
            if number == COUNT - 1:
                asked = (Interrupt("Publish?", id="1"),)
                written = write("task", "__interrupt__", value=value(asked), task_path=path, idx=-3)
            else:
                written = write("task", "log", value=value([report]), task_path=path)
            request = save_request(
                name(number),
                channels,
                parent=name(number - 1) if number else "",
                metadata=b'{"source": "loop"}',
                writes=[written],
            )
            seen = request.checkpoint.state.versions_seen["agent"].channels["branch:to:agent"]
            seen.integer = number + 1
            request.checkpoint.summary = f"step {number}"
            await self.checkpoints.SaveCheckpoint(request)

    async def steps(self) -> dict[str, step_pb2.Step]:
        """Return the steps in a listing of single reads, by checkpoint."""
        steps = {}
        for number in range(COUNT):
            request = pb.GetCheckpointRequest(ref=ref(name(number)), view=STEP)
            steps[name(number)] = (await self.checkpoints.GetCheckpoint(request)).checkpoint.step
        return steps

    async def thread(self) -> thread_pb2.Thread:
        [thread] = (await self.threads.ListThreads(thread_service_pb2.ListThreadsRequest())).threads
        return thread


def running(config: Config) -> AbstractAsyncContextManager[Running]:
    return serving(Running, config)


def edit(config: Config, statement: str) -> None:
    """Change at least one row of the database."""
    with opened_journal(config) as (journal, _):
        assert journal.execute(statement).rowcount > 0


async def test_the_steps_of_sound_rows(config: Config) -> None:
    async with running(config) as server:
        await server.grow()
        steps = await server.steps()
        for number in range(COUNT):
            step = steps[name(number)]
            assert (list(step.nodes), list(step.next_nodes)) == (["agent"], ["agent"])
            assert list(step.changed_channels) == ["log"]
            assert step.tokens.input_tokens == (5 if number else 0)
        [question] = steps[name(COUNT - 1)].questions
        assert (question.node, question.text) == ("agent", "Publish?")
        thread = await server.thread()
        assert (thread.question, thread.summary) == (question, f"step {COUNT - 1}")


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE writes SET task_path = '~__pregel_pull, boss' WHERE {OF_ASKING}",
        f"UPDATE writes SET channel = '__error__' WHERE {OF_ASKING}",
        f"UPDATE writes SET digest = (SELECT digest FROM writes WHERE {OF_MIDDLE})"
        f" WHERE {OF_ASKING}",
        f"UPDATE checkpoints SET summary = 'all is well' WHERE {OF_ASKING}",
        f"UPDATE checkpoints SET metadata = state WHERE {OF_ASKING}",
    ],
    ids=["path", "channel", "digest", "summary", "metadata"],
)
async def test_an_edited_checkpoint_is_refused_and_its_thread_says_nothing(
    config: Config, statement: str
) -> None:
    async with running(config) as server:
        await server.grow()
        edit(config, statement)
        listing = server.checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(view=STEP))
        replay = server.history.ReplayThread(
            history_service_pb2.ReplayThreadRequest(thread_id="thread", view=STEP)
        )
        for stream in (listing, replay):
            checkpoint_ids, ended = await ids_of(stream)
            assert sorted(checkpoint_ids) == [name(number) for number in range(COUNT - 1)]
            assert name(COUNT - 1) in ended
        request = pb.GetCheckpointRequest(ref=ref(name(COUNT - 1)), view=STEP)
        error = await refused(server.checkpoints.GetCheckpoint(request))
        assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "JOURNAL_DAMAGED")
        thread = await server.thread()
        assert not thread.HasField("question")
        assert thread.summary == ("" if "UPDATE checkpoints" in statement else f"step {COUNT - 1}")


async def test_an_edited_parent_says_nothing_of_the_next_step(config: Config) -> None:
    async with running(config) as server:
        await server.grow()
        edit(config, f"UPDATE writes SET task_path = 'another' WHERE {OF_MIDDLE}")
        edit(config, f"UPDATE checkpoints SET label = 'another' WHERE {OF_MIDDLE}")
        request = pb.GetCheckpointRequest(ref=ref(name(2)), view=STEP)
        step = (await server.checkpoints.GetCheckpoint(request)).checkpoint.step
        assert not step.HasField("tokens")
        assert list(step.nodes) == ["agent"]  # by the checkpoint's own versions


async def test_a_flipped_bit_of_a_value_says_nothing(config: Config) -> None:
    async with running(config) as server:
        await server.grow()
        with opened_journal(config) as (journal, mark):
            journal.execute(f"UPDATE writes SET data = {mark}", (b"\xa9something",))
        steps = await server.steps()
        [question] = steps[name(COUNT - 1)].questions
        assert (question.node, question.text, question.answered) == ("agent", "", False)
        assert not any(step.HasField("tokens") for step in steps.values())
        assert (await server.thread()).question == question
