"""The state that publisher and aggregator share: ledger, faults, counts."""

from __future__ import annotations

import asyncio

from .encoding.blob_id import BlobIds
from .errors import Failure, Reason, gateway_page, overloaded, refused, text
from .faults import Fault, FaultKind, FaultPlan, Operation, Stage
from .ledger.clock import EpochClock
from .ledger.directory import LedgerDirectory
from .ledger.results import StoreResult
from .ledger.state import Ledger, StoreOptions
from .settings import EmulatorSettings

_STORES = frozenset({Operation.PUT_BLOB, Operation.PUT_QUILT})

# Larger contents are hashed in a thread, so that other requests continue.
_LONG_BYTES = 64 * 1024
_LONG_FAST_BYTES = 4 * 1024 * 1024


class ConnectionDroppedError(Exception):
    """The server must cut the connection without an answer."""


class World:
    """The state that outlives a request.

    Args:
        settings: The settings of the emulator.

    Raises:
        ValueError: The mode of blob IDs is unknown, or the length of an epoch is 0.
        OSError: The directory cannot be used.
        DamagedRecord: The content of the directory cannot be replayed.
    """

    def __init__(self, settings: EmulatorSettings) -> None:
        self.settings = settings
        self.ids = BlobIds(settings.ids)
        self.faults = FaultPlan(settings.seed)
        self._hidden: dict[bytes, int] = {}
        place = settings.directory
        self._directory = None if place is None else LedgerDirectory(place)
        self.ledger = self._new_ledger()
        if self._directory is not None:
            self._directory.replay(self.ledger)

    def reset(self) -> None:
        """Remove blobs, counts and planned faults."""
        self.faults.clear()
        self.faults.injected.clear()
        self.faults.reseed(self.settings.seed)
        self._hidden.clear()
        if self._directory is not None:
            self._directory.clear()
        self.ledger = self._new_ledger()

    def _new_ledger(self) -> Ledger:
        settings = self.settings
        return Ledger(
            clock=EpochClock(epoch_s=settings.epoch_s),
            prices=settings.prices,
            balance=settings.balance,
            after_store=settings.after_store,
        )

    def store(
        self,
        blob_id: bytes,
        data: bytes,
        options: StoreOptions,
        *,
        is_quilt: bool,
        visible_after_s: float = 0.0,
    ) -> StoreResult:
        """Store a blob with `Ledger.store`, and record the store in the directory.

        Raises:
            StoreFailedError: The chain or the wallet refuses.
        """
        epoch = self.ledger.clock.epoch
        result = self.ledger.store(
            blob_id, data, options, is_quilt=is_quilt, visible_after_s=visible_after_s
        )
        if self._directory is not None:
            self._directory.stored(epoch, blob_id, data, options, is_quilt=is_quilt)
        return result

    def register(
        self, blob_id: bytes, data: bytes, options: StoreOptions, *, is_quilt: bool
    ) -> None:
        """Register a blob with `Ledger.register`, and record it in the directory.

        Raises:
            StoreFailedError: The chain or the wallet refuses.
        """
        epoch = self.ledger.clock.epoch
        self.ledger.register(blob_id, data, options, is_quilt=is_quilt)
        if self._directory is not None:
            self._directory.registered(epoch, blob_id, data, options, is_quilt=is_quilt)

    def advance(self, epochs: int) -> int:
        """Advance by some epochs, record the new epoch in the directory, and return it."""
        epoch = self.ledger.advance(epochs)
        if self._directory is not None:
            self._directory.passed(epoch)
        return epoch

    def block(self, blob_id: bytes) -> None:
        """Block a blob ID, and record that in the directory."""
        self.ledger.block(blob_id)
        if self._directory is not None:
            self._directory.blocked(self.ledger.clock.epoch, blob_id, blocked=True)

    def unblock(self, blob_id: bytes) -> None:
        """Unblock a blob ID, and record that in the directory."""
        self.ledger.unblock(blob_id)
        if self._directory is not None:
            self._directory.blocked(self.ledger.clock.epoch, blob_id, blocked=False)

    async def id_of(self, data: bytes) -> bytes:
        """Return the blob ID of a content.

        Raises:
            BlobTooLarge: The shards cannot encode it.
        """
        mode = self.ids.mode
        longest = _LONG_FAST_BYTES if mode == "fast" else _LONG_BYTES
        if len(data) >= longest or mode in _SLOW_MODES:
            return await asyncio.to_thread(self.ids.of, data)
        return self.ids.of(data)

    def hide(self, blob_id: bytes, reads: int) -> None:
        """Let the next reads of a blob find nothing."""
        if reads:
            self._hidden[blob_id] = reads

    def is_hidden(self, blob_id: bytes) -> bool:
        """Return whether this read of a blob finds nothing, and count the read."""
        reads = self._hidden.get(blob_id, 0)
        if not reads:
            return False
        if reads == 1:
            del self._hidden[blob_id]
        else:
            self._hidden[blob_id] = reads - 1
        return True

    async def strike(self, operation: Operation, fault: Fault | None, stage: Stage) -> None:
        """Cause a fault if the request has reached its stage.

        Raises:
            Failure: The answer of the fault.
            ConnectionDroppedError: The fault cuts the connection.
        """
        if fault is None or fault.stage is not stage:
            return
        if fault.latency_s:
            await self.faults.pause(fault.latency_s)
        match fault.kind:
            case FaultKind.HOLD:
                await self.faults.hold()
            case FaultKind.REFUSE:
                raise refusal(operation, fault.status)
            case FaultKind.GATEWAY:
                raise gateway_page(fault.status)
            case FaultKind.OUT_OF_WAL:
                raise refused(Reason.INTERNAL_ERROR)
            case FaultKind.DROP:
                raise ConnectionDroppedError


def refusal(operation: Operation, status: int) -> Failure:
    """Return an operation's real answer with a status.

    A status that the service never sends comes from a proxy in front of the service.
    """
    is_store = operation in _STORES
    if status == 429:
        return overloaded()
    if status == 413 and is_store:
        return text(413, "length limit exceeded")
    reason = (_STORE_REFUSALS if is_store else _READ_REFUSALS).get(status)
    return gateway_page(status) if reason is None else refused(reason)


_SLOW_MODES = frozenset({"real", "n=1000", "n=100"})

_STORE_REFUSALS = {
    400: Reason.MALFORMED_REQUEST,
    401: Reason.INVALID_SIGNATURE,
    451: Reason.FORBIDDEN_BLOB,
    500: Reason.INTERNAL_ERROR,
    504: Reason.INSUFFICIENT_CONFIRMATIONS,
}

_READ_REFUSALS = {
    403: Reason.BLOB_TOO_LARGE,
    404: Reason.BLOB_NOT_FOUND,
    416: Reason.RANGE_NOT_SATISFIABLE,
    451: Reason.FORBIDDEN_BLOB,
    500: Reason.INTERNAL_ERROR,
    503: Reason.BLOB_UNAVAILABLE,
}
