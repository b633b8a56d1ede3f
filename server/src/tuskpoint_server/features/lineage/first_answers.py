"""First answers of calls that are not upserts, so that a retry gets the same answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import TypeVar

from sqlalchemy import Connection, bindparam, select

from ...core.errors import Reason, Refusal
from ...core.model import CheckpointKey, SaveOutcome
from ...core.values import UnopenedBytes
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import requests
from ...journal.sql.statements import Statement, insert_rows

_T = TypeVar("_T")
_READ = Statement(
    select(requests.c.method, requests.c.fingerprint, requests.c.answer).where(
        requests.c.tenant == bindparam("of_tenant"),
        requests.c.request_id == bindparam("of_request"),
    )
)
_STORE = Statement(insert_rows(requests))


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be a retry."""

    tenant: str
    request_id: str  # identifies retries; empty: no retries
    method: str
    fingerprint: bytes  # digest of the arguments

    def first_answer(self, connection: Connection) -> bytes | None:
        """Return the earlier answer to a request; `None` if the request is new.

        Raises:
            Refusal: `REQUEST_ID_REUSED` if another request had the ID; `JOURNAL_DAMAGED`.
        """
        if not self.request_id:
            return None
        row = _READ.run(connection, of_tenant=self.tenant, of_request=self.request_id).fetchone()
        if row is None:
            return None
        if (row[0], row[1]) != (self.method, self.fingerprint):
            raise Refusal(Reason.REQUEST_ID_REUSED, request_id=self.request_id)
        if isinstance(row[2], UnopenedBytes):
            subject = f"the first answer to request '{self.request_id}'"
            raise Refusal(Reason.JOURNAL_DAMAGED, what=subject, problem=row[2].problem)
        return bytes(row[2])

    def once(
        self,
        batch: UnitOfWork,
        work: Callable[[UnitOfWork], _T],
        encode: Callable[[_T], bytes],
        decode: Callable[[bytes], _T],
    ) -> _T:
        """Return the result of `work`, or the first answer, which is stored encoded."""
        first = self.first_answer(batch.connection)
        if first is not None:
            return decode(first)
        answer = work(batch)
        if self.request_id:
            _STORE.run(
                batch.connection,
                tenant=self.tenant,
                request_id=self.request_id,
                method=self.method,
                fingerprint=self.fingerprint,
                answer=encode(answer),
                created_us=batch.now_us,
            )
        return answer


def request(tenant: str, request_id: str, method: str, *arguments: str) -> Request:
    """Return a request with these arguments, texts without a zero character."""
    fingerprint = hashlib.sha256("\0".join((method, *arguments)).encode()).digest()
    return Request(tenant, request_id, method, fingerprint)


def encode_saved(saved: SaveOutcome, signer: str = "") -> bytes:
    """Return the stored form of an outcome, with which a retry can wait for the same change.

    `signer`: public key of the adopted offer, which may be removed before a retry; empty: none.
    """
    signers = [signer] if signer else []
    return json.dumps([*astuple(saved.key), saved.seq, saved.incarnation, *signers]).encode()


def decode_saved(answer: bytes) -> SaveOutcome:
    """Decode an outcome that `encode_saved` encoded."""
    thread_id, checkpoint_ns, checkpoint_id, seq, incarnation, *_ = json.loads(answer)
    return SaveOutcome(CheckpointKey(thread_id, checkpoint_ns, checkpoint_id), seq, incarnation)


def decode_signer(answer: bytes) -> str:
    """Return the signer in the stored form of an outcome; empty: none."""
    [*_, last] = json.loads(answer)
    return last if isinstance(last, str) else ""
