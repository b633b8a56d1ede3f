"""First answers of calls that are not upserts, so that a retry gets the same one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select

from ...domain.errors import Reason, Refusal
from ...domain.model import CheckpointKey, Saved
from ..database.schema import requests
from ..database.statements import Statement, all_columns

_READ = Statement(
    select(requests.c.method, requests.c.fingerprint, requests.c.answer).where(
        requests.c.tenant == bindparam("of_tenant"),
        requests.c.request_id == bindparam("of_request"),
    )
)
_STORE = Statement(insert(requests).values(all_columns(requests)))


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be a retry.

    Attributes:
        tenant: The tenant.
        request_id: What a retry is known by; empty: there are none.
        method: The call.
        fingerprint: Digest of what it asks for.
    """

    tenant: str
    request_id: str
    method: str
    fingerprint: bytes

    def first_answer(self, connection: Connection) -> bytes | None:
        """Return the answer that this request got before; `None` if it is new.

        Raises:
            Refusal: `REQUEST_ID_REUSED` if another request had the ID.
        """
        if not self.request_id:
            return None
        row = _READ.run(connection, of_tenant=self.tenant, of_request=self.request_id).fetchone()
        if row is None:
            return None
        if (row[0], row[1]) != (self.method, self.fingerprint):
            raise Refusal(Reason.REQUEST_ID_REUSED, request_id=self.request_id)
        return bytes(row[2])

    def keep_answer(self, connection: Connection, answer: bytes, now_us: int) -> None:
        """Record the answer for a retry."""
        if not self.request_id:
            return
        _STORE.run(
            connection,
            tenant=self.tenant,
            request_id=self.request_id,
            method=self.method,
            fingerprint=self.fingerprint,
            answer=answer,
            created_us=now_us,
        )


def request(tenant: str, request_id: str, method: str, *asked: str) -> Request:
    """Return a request by what it asks for; the texts hold no zero character."""
    return Request(tenant, request_id, method, fingerprint_of(method, *asked))


def fingerprint_of(method: str, *asked: str) -> bytes:
    """Return a digest of what a request asks for; the texts hold no zero character."""
    return hashlib.sha256("\0".join((method, *asked)).encode()).digest()


def encode_saved(saved: Saved) -> bytes:
    """Return the form in which an outcome is kept: enough to wait for the same change."""
    return json.dumps(
        {
            "thread_id": saved.key.thread_id,
            "checkpoint_ns": saved.key.checkpoint_ns,
            "checkpoint_id": saved.key.checkpoint_id,
            "seq": saved.seq,
            "incarnation": saved.incarnation,
        }
    ).encode()


def decode_saved(answer: bytes) -> Saved:
    """Return what `encode_saved` wrote."""
    kept = json.loads(answer)
    key = CheckpointKey(kept["thread_id"], kept["checkpoint_ns"], kept["checkpoint_id"])
    return Saved(key, kept["seq"], kept["incarnation"])
