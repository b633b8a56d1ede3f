"""A checkpointer factory, as an application has it in a file; the saver counts its reads."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

from tuskpoint import TuskPointSaver


class CountingSaver(TuskPointSaver):
    """A saver that counts its reads by the name of the call."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Count a read of one checkpoint."""
        self.reads["GetCheckpoint"] += 1
        return await super().aget_tuple(config)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Count a read of a history."""
        self.reads["GetDeltaHistory"] += 1
        return await super().aget_delta_channel_history(config=config, channels=channels)


@asynccontextmanager
async def checkpointer() -> AsyncIterator[CountingSaver]:
    """Yield the saver of an Agent Server."""
    async with CountingSaver() as saver:
        yield saver
