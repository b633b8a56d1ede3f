"""First answers of calls that are not upserts, so that a retry gets the same one."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, bindparam, select

from ..domain.errors import Reason, Refusal
from .schema import requests
from .statements import Statement, all_columns

_READ = Statement(
    select(requests.c.method, requests.c.fingerprint, requests.c.answer).where(
        requests.c.tenant == bindparam("of_tenant"),
        requests.c.request_id == bindparam("of_request"),
    )
)
_STORE = Statement(lambda insert_into: insert_into(requests).values(all_columns(requests)))


def fingerprint_of(method: str, *fields: str) -> bytes:
    """Return a digest of what a request asks for; fields hold no zero character."""
    return hashlib.sha256("\0".join((method, *fields)).encode()).digest()


def first_answer(
    connection: Connection, tenant: str, request_id: str, method: str, fingerprint: bytes
) -> bytes | None:
    """Return the answer that this request got before; `None` if it is new.

    Raises:
        Refusal: `REQUEST_ID_REUSED` if another request had the ID.
    """
    if not request_id:
        return None
    row = _READ.run(connection, of_tenant=tenant, of_request=request_id).fetchone()
    if row is None:
        return None
    if (row[0], row[1]) != (method, fingerprint):
        raise Refusal(Reason.REQUEST_ID_REUSED, request_id=request_id)
    return bytes(row[2])


def keep_answer(
    connection: Connection,
    tenant: str,
    request_id: str,
    method: str,
    fingerprint: bytes,
    answer: bytes,
    now_us: int,
) -> None:
    """Record the answer of a request that has an ID."""
    if not request_id:
        return
    _STORE.run(
        connection,
        tenant=tenant,
        request_id=request_id,
        method=method,
        fingerprint=fingerprint,
        answer=answer,
        created_us=now_us,
    )
