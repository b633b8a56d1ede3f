"""The ledger of blobs, their objects, ends and prices.

Not safe for threads: one event loop owns the ledger. No call waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..encoding.blob_id import to_text
from ..encoding.geometry import MAINNET, Prices
from .chain import Chain
from .clock import EpochClock
from .records import (
    MAX_EPOCHS_AHEAD,
    AfterStore,
    BlobForbidden,
    BlobNotFound,
    BlobRecord,
    EpochsOutOfRange,
    ObjectNotFound,
    OutOfWal,
    OwnedObject,
    ShareNeedsPermanent,
    StoredContent,
    StoreFailedError,
    StoreOptions,
)
from .results import (
    AlreadyCertified,
    MarkedInvalid,
    NewlyCreated,
    RegisterFromScratch,
    ResourceOperation,
    ReuseAndExtend,
    ReuseRegistration,
    ReuseStorage,
    StorageResource,
    StoreError,
    StoreResult,
)
from .statistics import Statistics

__all__ = [
    "MAX_EPOCHS_AHEAD",
    "AfterStore",
    "BlobForbidden",
    "BlobNotFound",
    "EpochsOutOfRange",
    "Ledger",
    "ObjectNotFound",
    "OutOfWal",
    "OwnedObject",
    "ShareNeedsPermanent",
    "Statistics",
    "StoreFailedError",
    "StoreOptions",
    "StoredContent",
]

BLOCKED_PHASE = "check_blob_is_blocked"
"""The step that fails for a blob on the publisher's blocklist."""

BLOB_TYPE = "_walrusBlobType"
QUILT = "quilt"
"""The attribute that marks the object of a quilt, and its value."""


class Ledger:
    """All stored blobs, and their costs.

    Attributes:
        clock: The epoch clock.
        prices: Prices of a unit, in FROST.
        balance: FROST in the wallet; `None`: unlimited.
        after_store: What the publisher does with objects of requests that name no receiver.
        statistics: Counters.
        main_wallet: Address of the publisher's main wallet.
        sub_wallet: Address of the wallet that signs.
    """

    def __init__(
        self,
        *,
        clock: EpochClock | None = None,
        prices: Prices | None = None,
        balance: int | None = None,
        after_store: AfterStore = AfterStore.MAIN_WALLET,
    ) -> None:
        """Start empty; the default clock moves only by `advance`."""
        self.clock = clock or EpochClock()
        self.prices = prices or Prices()
        self.balance = balance
        self.after_store = after_store
        self.statistics = Statistics()
        self._chain = Chain()
        self.main_wallet = self._chain.new_id()
        self.sub_wallet = self._chain.new_id()
        self._blobs: dict[bytes, BlobRecord] = {}
        self._objects: dict[str, OwnedObject] = {}
        self._spare: list[StorageResource] = []
        self._swept = self.clock.epoch

    # --- storing ----------------------------------------------------------------------------------

    def store(
        self,
        blob_id: bytes,
        data: bytes,
        options: StoreOptions,
        *,
        is_quilt: bool = False,
        attributes: Mapping[str, str] | None = None,
        visible_after_s: float = 0.0,
    ) -> StoreResult:
        """Store a blob as a publisher does, and return the result.

        Args:
            blob_id: The 32 bytes, in any mode.
            data: The content.
            options: The query. `deletable` beside `permanent`, and `share` beside
                `send_object_to`, are refused earlier.
            is_quilt: Whether the blob is a quilt, which the attributes of its object say.
            attributes: More attributes of the object.
            visible_after_s: Seconds until reads find a blob that is not visible yet.

        Raises:
            StoreFailedError: One of its subclasses; nothing was paid.
        """
        self.statistics.received_bytes += len(data)
        if self._swept != self.clock.epoch:
            self._drop_ended()
        try:
            result = self._finished(blob_id, options)
            if result is None:
                blob_object, operation, cost = self._obtain(blob_id, len(data), options, is_quilt)
                blob_object.attributes.update(attributes or {})
                result = self._certify(blob_object, operation, cost, options, data, visible_after_s)
        except StoreFailedError:
            self.statistics.failed_puts += 1
            raise
        self.statistics.count_put(next(iter(result.to_json())))
        return result

    def register(
        self, blob_id: bytes, data: bytes, options: StoreOptions, *, is_quilt: bool = False
    ) -> OwnedObject:
        """Pay and register without certifying, like a store that was interrupted.

        The object stays with the sub-wallet; nothing becomes readable.

        Raises:
            StoreFailedError: One of its subclasses; nothing was paid.
        """
        self.statistics.received_bytes += len(data)
        self.statistics.failed_puts += 1
        blob_object, _, _ = self._obtain(blob_id, len(data), options, is_quilt)
        return blob_object

    def _finished(self, blob_id: bytes, options: StoreOptions) -> StoreResult | None:
        """Return the result of a store that needs no registration."""
        blob = self._blob(blob_id)
        text = to_text(blob_id)
        if blob.blocked:
            return StoreError(text, BLOCKED_PHASE, f"the blob ID {text} is blocked")
        if options.force:
            return None
        if blob.invalid is not None:
            return MarkedInvalid(text, blob.invalid)
        now = self.clock.epoch
        if options.permanent and blob.certified is not None:
            end_epoch = blob.end_epoch(now, permanent=True)
            if end_epoch and end_epoch >= now + options.epochs:
                return AlreadyCertified(text, end_epoch, blob.certified)
        return None

    def _obtain(
        self, blob_id: bytes, size: int, options: StoreOptions, is_quilt: bool
    ) -> tuple[OwnedObject, ResourceOperation, int]:
        """Register, or reuse an object or storage; pay; return the operation for the answer."""
        if not 1 <= options.epochs <= MAX_EPOCHS_AHEAD:
            raise EpochsOutOfRange(
                f"{options.epochs} epochs ahead: between 1 and {MAX_EPOCHS_AHEAD} can be bought"
            )
        if options.share and not options.permanent:
            raise ShareNeedsPermanent("only a permanent blob can be shared")
        encoded = MAINNET.encoded_bytes(size)
        if options.reuse_resources:
            owned = self._reusable(blob_id, options)
            if owned is not None:
                return self._reuse(owned, self.clock.epoch + options.epochs)
            spare = self._spare_storage(encoded, self.clock.epoch + options.epochs)
            if spare is not None:
                cost = self._pay(self.prices.of_write(encoded))
                self._spare.remove(spare)
                blob_object = self._new_object(blob_id, size, options, spare, is_quilt)
                return blob_object, ReuseStorage(encoded), cost
        now = self.clock.epoch
        cost = self._pay(self.prices.of_store(encoded, options.epochs))
        self.statistics.count_registration(encoded)
        storage = StorageResource(self._chain.new_id(), now, now + options.epochs, encoded)
        blob_object = self._new_object(blob_id, size, options, storage, is_quilt)
        return blob_object, RegisterFromScratch(encoded, options.epochs), cost

    def _reusable(self, blob_id: bytes, options: StoreOptions) -> OwnedObject | None:
        """Return a fitting object of the sub-wallet; a forced store skips certified objects."""
        for blob_object in self.objects(blob_id):
            if (
                blob_object.owner == self.sub_wallet
                and blob_object.deletable is not options.permanent
                and not (options.force and blob_object.certified_epoch is not None)
            ):
                return blob_object
        return None

    def _reuse(
        self, blob_object: OwnedObject, target: int
    ) -> tuple[OwnedObject, ResourceOperation, int]:
        encoded = blob_object.storage.encoded_bytes
        missing = target - blob_object.end_epoch
        if missing <= 0:
            return blob_object, ReuseRegistration(encoded), 0
        cost = self._extend(blob_object, missing)
        return (
            blob_object,
            ReuseAndExtend(encoded, missing, blob_object.certified_epoch is not None),
            cost,
        )

    def _spare_storage(self, encoded: int, target: int) -> StorageResource | None:
        fitting = [
            spare
            for spare in self._spare
            if spare.encoded_bytes >= encoded and spare.end_epoch >= target
        ]
        return min(fitting, key=lambda spare: (spare.encoded_bytes, spare.end_epoch), default=None)

    def _new_object(
        self,
        blob_id: bytes,
        size: int,
        options: StoreOptions,
        storage: StorageResource,
        is_quilt: bool,
    ) -> OwnedObject:
        blob_object = OwnedObject(
            id=self._chain.new_id(),
            blob_id=blob_id,
            size=size,
            deletable=not options.permanent,
            registered_epoch=self.clock.epoch,
            certified_epoch=None,
            storage=storage,
            owner=self.sub_wallet,
        )
        if is_quilt:
            blob_object.attributes[BLOB_TYPE] = QUILT
        self._blob(blob_id).objects.append(blob_object)
        self._objects[blob_object.id] = blob_object
        return blob_object

    def _certify(
        self,
        blob_object: OwnedObject,
        operation: ResourceOperation,
        cost: int,
        options: StoreOptions,
        data: bytes,
        visible_after_s: float,
    ) -> StoreResult:
        """Make the content readable, transfer the object, and return the result."""
        if isinstance(operation, ReuseRegistration) and blob_object.certified_epoch is not None:
            return AlreadyCertified(
                to_text(blob_object.blob_id), blob_object.end_epoch, blob_object.id
            )
        # An answer shows a new object as registered, not as certified.
        shown = blob_object.shown()
        blob = self._blob(blob_object.blob_id)
        if not self._is_stored(blob):
            blob.visible_at = self.clock.now() + visible_after_s
        blob.data = data
        blob.is_quilt = blob_object.attributes.get(BLOB_TYPE) == QUILT
        if blob_object.certified_epoch is None:
            blob_object.certified_epoch = self.clock.epoch
        if not blob_object.deletable:
            blob.certified = self._chain.new_event()
        self._hand_over(blob_object, options)
        return NewlyCreated(shown, operation, cost, blob_object.shared_id)

    def _hand_over(self, blob_object: OwnedObject, options: StoreOptions) -> None:
        if options.share:
            blob_object.shared_id = self._chain.new_id()
            blob_object.owner = blob_object.shared_id
            self._objects[blob_object.shared_id] = blob_object
        elif options.send_object_to is not None:
            blob_object.owner = options.send_object_to
        elif self.after_store is AfterStore.MAIN_WALLET:
            blob_object.owner = self.main_wallet
        elif self.after_store is AfterStore.BURN:
            blob_object.owner = ""
            del self._objects[blob_object.id]

    def _pay(self, cost: int) -> int:
        if self.balance is not None:
            if cost > self.balance:
                raise OutOfWal(f"{cost} FROST are more than the {self.balance} in the wallet")
            self.balance -= cost
        self.statistics.cost += cost
        return cost

    def _extend(self, blob_object: OwnedObject, epochs: int) -> int:
        """Pay for more epochs, add them to an object, and return the price."""
        end_epoch = blob_object.end_epoch + epochs
        if epochs < 1 or end_epoch > self.clock.epoch + MAX_EPOCHS_AHEAD:
            raise EpochsOutOfRange(f"an end in epoch {end_epoch} cannot be bought")
        cost = self._pay(self.prices.of_storage(blob_object.storage.encoded_bytes, epochs))
        blob_object.storage = replace(blob_object.storage, end_epoch=end_epoch)
        return cost

    # --- reading ----------------------------------------------------------------------------------

    def read(self, blob_id: bytes) -> StoredContent:
        """Return a readable blob.

        Raises:
            BlobNotFound: The blob is unknown, not certified, not yet visible, expired or deleted.
            BlobForbidden: The blob is blocked.
        """
        blob = self._blobs.get(blob_id)
        if blob is not None and blob.blocked:
            raise BlobForbidden(to_text(blob_id))
        if (
            blob is None
            or blob.data is None
            or blob.invalid is not None
            or not self._is_stored(blob)
            or blob.visible_at > self.clock.now()
        ):
            raise BlobNotFound(to_text(blob_id))
        return StoredContent(blob_id, blob.data, blob.end_epoch(self.clock.epoch), blob.is_quilt)

    def read_object(self, object_id: str) -> tuple[OwnedObject, StoredContent]:
        """Return an object and the content of its blob.

        Raises:
            ObjectNotFound: No such object.
            BlobNotFound: As for `read`.
            BlobForbidden: As for `read`.
        """
        blob_object = self.object_by_id(object_id)
        return blob_object, self.read(blob_object.blob_id)

    def objects(self, blob_id: bytes) -> tuple[OwnedObject, ...]:
        """Return the objects of a blob that have not ended, oldest first, burnt ones included."""
        blob = self._blobs.get(blob_id)
        now = self.clock.epoch
        return (
            tuple(blob_object for blob_object in blob.objects if blob_object.end_epoch > now)
            if blob
            else ()
        )

    def object_by_id(self, object_id: str) -> OwnedObject:
        """Return an object that has not ended; the ID of a shared object returns the inner object.

        Raises:
            ObjectNotFound: No such object.
        """
        blob_object = self._objects.get(object_id)
        if blob_object is None or blob_object.end_epoch <= self.clock.epoch:
            raise ObjectNotFound(object_id)
        return blob_object

    def blob_ids(self) -> tuple[bytes, ...]:
        """Return the IDs of all blobs that are certified and have not ended, oldest first."""
        return tuple(key for key, blob in self._blobs.items() if self._is_stored(blob))

    def _is_stored(self, blob: BlobRecord) -> bool:
        return blob.end_epoch(self.clock.epoch) > 0

    # --- what happens to it -----------------------------------------------------------------------

    def block(self, blob_id: bytes) -> None:
        """Block a blob ID: stores answer an error, reads are forbidden."""
        self._blob(blob_id).blocked = True

    def unblock(self, blob_id: bytes) -> None:
        """Unblock a blob ID."""
        self._blob(blob_id).blocked = False

    def mark_invalid(self, blob_id: bytes) -> None:
        """Mark a blob ID as inconsistent: stores answer so, reads do not find the blob."""
        self._blob(blob_id).invalid = self._chain.new_event()

    def tamper(self, blob_id: bytes, data: bytes) -> None:
        """Replace the content that reads of a blob return, as a dishonest aggregator would.

        Raises:
            BlobNotFound: The blob is not stored.
        """
        self.read(blob_id)
        self._blob(blob_id).data = data

    def extend_object(self, object_id: str, epochs: int) -> OwnedObject:
        """Extend a certified object as its owner does on the chain; costs storage only.

        Raises:
            ObjectNotFound: No such object, or a burnt one.
            StoreFailedError: The object is not certified, the end is too far ahead, or WAL lacks.
        """
        blob_object = self.object_by_id(object_id)
        if blob_object.certified_epoch is None:
            raise StoreFailedError(f"the object {object_id} is not certified")
        self._extend(blob_object, epochs)
        return blob_object

    def delete_object(self, object_id: str) -> None:
        """Delete a deletable object as its owner does on the chain.

        Its storage goes back to the owner; the sub-wallet may then reuse it.

        Raises:
            ObjectNotFound: No such object, or a burnt one.
            StoreFailedError: The object is permanent.
        """
        blob_object = self.object_by_id(object_id)
        if not blob_object.deletable:
            raise StoreFailedError(f"the object {object_id} is permanent")
        self._blob(blob_object.blob_id).objects.remove(blob_object)
        del self._objects[blob_object.id]
        if blob_object.owner == self.sub_wallet:
            self._spare.append(blob_object.storage)
        self._drop_ended()

    def advance(self, epochs: int = 1) -> int:
        """Advance by some epochs, drop ended objects, and return the new epoch."""
        self.clock.advance(epochs)
        self._drop_ended()
        return self.clock.epoch

    def _drop_ended(self) -> None:
        """Free the contents and the objects that no read can reach."""
        self._swept = now = self.clock.epoch
        for blob_id, blob in list(self._blobs.items()):
            blob.objects = [
                blob_object for blob_object in blob.objects if blob_object.end_epoch > now
            ]
            if not self._is_stored(blob):
                blob.data = None
            if not (blob.objects or blob.blocked or blob.invalid):
                del self._blobs[blob_id]
        self._objects = {
            key: blob_object
            for key, blob_object in self._objects.items()
            if blob_object.end_epoch > now
        }
        self._spare = [spare for spare in self._spare if spare.end_epoch > now]

    def _blob(self, blob_id: bytes) -> BlobRecord:
        return self._blobs.setdefault(blob_id, BlobRecord())
