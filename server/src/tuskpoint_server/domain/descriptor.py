"""Descriptors: the small portable description of a checkpoint that is handed off."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from .model import CheckpointKey, Entry
from .stored_json import dump


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Its fields are the seven keys of the JSON form; see `HandoffDescriptor`."""

    source: str
    thread_id: str
    checkpoint_id: str
    blob_id: str
    blob_sha256: str
    to_agent: str
    summary: str


def source_of(thread_id: str, checkpoint_id: str) -> str:
    """Return "thread:checkpoint", what `Descriptor.source` must be."""
    return str(CheckpointKey(thread_id, "", checkpoint_id))


def summary_of(entry: Entry) -> str:
    """Return the summary of a checkpoint; where nobody wrote one, a sentence that finds it."""
    if entry.summary:
        return entry.summary
    metadata = json.loads(entry.metadata)
    step, source = metadata.get("step"), metadata.get("source")
    if not isinstance(step, int) or isinstance(step, bool):
        return f"Checkpoint {entry.key.checkpoint_id} of thread {entry.key.thread_id}."
    cause = f" ({source})" if source in _SOURCES else ""
    return f"Step {step}{cause} of thread {entry.key.thread_id}."


_SOURCES = ("input", "loop", "update", "fork")
"""Values of `source` in the metadata that LangGraph writes."""


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """Return the JSON form."""
    return dump(asdict(descriptor))


def decode_descriptor(encoded: bytes) -> Descriptor:
    """Return what `encode_descriptor` wrote."""
    return Descriptor(**json.loads(encoded))
