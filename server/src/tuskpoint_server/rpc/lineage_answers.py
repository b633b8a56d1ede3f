"""Lineage as messages of the contract."""

from __future__ import annotations

from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.lineage import Descent, LineageStep, LineageTree
from . import convert

_KINDS = {
    Descent.FORK: pb.LINEAGE_KIND_FORK,
    Descent.ADOPTION: pb.LINEAGE_KIND_ADOPTION,
    Descent.ROLLBACK: pb.LINEAGE_KIND_ROLLBACK,
}


def lineage_response(tree: LineageTree) -> pb.GetLineageResponse:
    """Return the message for a lineage."""
    return pb.GetLineageResponse(
        ancestors=map(_step, tree.ancestors),
        descendants=map(_step, tree.descendants),
        truncated=tree.truncated,
    )


def _step(step: LineageStep) -> pb.LineageStep:
    # The field's name is a keyword of Python.
    return pb.LineageStep(
        kind=_KINDS[step.descent],
        to=convert.ref(step.key),
        create_time=convert.timestamp(step.created_us),
        **{"from": convert.ref(step.origin)},
    )
