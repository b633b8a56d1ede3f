"""What the limits of the contract say about a request that concerns whole threads."""

from __future__ import annotations

from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.limits import LIMITS
from .checks import DURABILITIES, Checks
from .differences import from_side


def check_get_thread(request: pb.GetThreadRequest) -> None:
    """Check a request for one thread.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.finish()


def check_delete_thread(request: pb.DeleteThreadRequest) -> None:
    """Check a deletion.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_set_retention(request: pb.SetRetentionRequest) -> None:
    """Check a retention.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    retention = request.retention
    if retention.nanos:
        checks.fail("retention", "must be whole seconds")
    elif not 0 <= retention.seconds <= LIMITS.max_retention_s:
        checks.fail("retention", f"must be 1 to {LIMITS.max_retention_s} seconds, or 0 to keep it")
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_set_searchable(request: pb.SetSearchableRequest) -> None:
    """Check whether a thread is to be searchable.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_list_threads(request: pb.ListThreadsRequest) -> None:
    """Check a listing of threads.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.text("agent_id", request.agent_id, LIMITS.max_agent_id)
    checks.text("label", request.label, LIMITS.max_label)
    checks.member("state", request.state, range(4))
    checks.page_size(request.page_size)
    checks.finish()


def check_get_manifest(request: pb.GetManifestRequest) -> None:
    """Check a request for a page of a manifest.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.page_size(request.page_size)
    if request.store and request.page_token:
        checks.fail("store", "must not be set with a page token; ask for it with the first page")
    checks.finish()


def check_verify_thread(request: pb.VerifyThreadRequest) -> None:
    """Check a request to verify a thread.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.finish()


def check_copy_thread(request: pb.CopyThreadRequest) -> None:
    """Check a copy.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    for field in ("source_thread_id", "target_thread_id"):
        checks.thread(field, getattr(request, field))
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_prune_threads(request: pb.PruneThreadsRequest) -> None:
    """Check a pruning.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.threads("thread_ids", request.thread_ids)
    if request.strategy == pb.PRUNE_STRATEGY_UNSPECIFIED:
        checks.fail("strategy", "must be set")
    checks.member("strategy", request.strategy, pb.PruneStrategy.values())
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_delete_runs(request: pb.DeleteRunsRequest) -> None:
    """Check a deletion of runs.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.batch("run_ids", request.run_ids, LIMITS.max_run_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_diff_checkpoints(request: pb.DiffCheckpointsRequest) -> None:
    """Check a comparison.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.ref("from", from_side(request))
    checks.ref("to", request.to)
    checks.finish()


def check_fork_thread(request: pb.ForkThreadRequest) -> None:
    """Check a fork.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.ref("ref", request.ref)
    checks.thread("new_thread_id", request.new_thread_id, required=False)
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_rollback_thread(request: pb.RollbackThreadRequest) -> None:
    """Check a rollback.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.ref("ref", request.ref, id_required=True)
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.text("expected_head", request.expected_head, LIMITS.max_checkpoint_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_get_lineage(request: pb.GetLineageRequest) -> None:
    """Check a request for a thread's lineage.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.thread("thread_id", request.thread_id)
    checks.finish()
