"""The limits of requests, which `GetServerInfo` announces."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

MAX_MEMBER_READ = 64 * MIB
"""Most stored bytes that are read into memory at once: eight times what a server writes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in force. Sizes are in bytes, times in seconds.

    `max_message` is above `max_unary` and twice `max_chunk`, so that an answer at its limit fits a
    message. A read cannot cut metadata, state and names of writes into chunks, so `max_metadata`,
    `max_state` and `max_write_names` together fit one message: all that is saved can be loaded.
    """

    max_message: int = 8 * MIB
    max_unary: int = 4 * MIB
    max_chunk: int = 1 * MIB
    max_value: int = 128 * MIB
    max_checkpoint: int = 256 * MIB
    max_metadata: int = 1 * MIB
    max_state: int = 3 * MIB
    max_write_names: int = 3 * MIB
    max_channels: int = 4096
    max_writes: int = 4096
    max_extras: int = 64
    max_held_digests: int = 256
    max_thread_id: int = 512
    max_checkpoint_ns: int = 2048
    max_checkpoint_id: int = 128
    max_task_id: int = 512
    max_task_path: int = 2048
    max_channel_name: int = 512
    max_version_text: int = 512
    max_value_type: int = 128
    max_timestamp_text: int = 64
    max_label: int = 256
    max_summary: int = 1024
    max_agent_id: int = 256
    max_request_id: int = 128
    max_lease_id: int = 128
    max_owner: int = 256
    max_run_id: int = 512
    max_batch: int = 1000
    max_page: int = 1000
    default_page: int = 100
    early_write_ttl_s: int = 24 * 3600
    request_id_ttl_s: int = 24 * 3600
    event_ttl_s: int = 7 * 24 * 3600
    max_bundle: int = 1024 * MIB
    max_snapshot_members: int = 1000
    max_hostname: int = 256
    max_session_id: int = 256
    max_working_directory: int = 4096
    max_diff_changes: int = 10_000
    default_diff_changes: int = 1000
    max_lineage_steps: int = 1000
    max_retention_s: int = 100 * 365 * 24 * 3600
    max_search_text: int = 8 * KIB
    max_query: int = 4096
    default_results: int = 5
    max_search_results: int = 100
    max_vector_dimension: int = 8192
    max_item_value: int = 1 * MIB
    max_item_key: int = 512
    max_item_labels: int = 32
    max_item_namespace: int = 512
    max_item_paths: int = 64
    max_item_path: int = 512
    default_items: int = 10
    max_effect_result: int = 3 * MIB
    max_thread_effects: int = 10_000
    max_effect_key: int = 256
    max_effect_name: int = 256
    max_effect_digest: int = 64
    max_effect_error: int = 1024
    min_effect_timeout_s: int = 1
    max_effect_timeout_s: int = 7 * 24 * 3600
    default_effect_timeout_s: int = 60


LIMITS = Limits()


def text_problem(value: str, maximum: int, *, required: bool = False) -> str:
    """Return the problem of a string of at most `maximum` bytes of UTF-8; empty if it is valid."""
    if not value:
        return "must not be empty" if required else ""
    if len(value) > maximum or (
        not value.isascii() and len(value.encode(errors="surrogatepass")) > maximum
    ):
        return f"must be at most {maximum} bytes of UTF-8"
    if "\0" in value:
        return "must not contain NUL"
    return ""
