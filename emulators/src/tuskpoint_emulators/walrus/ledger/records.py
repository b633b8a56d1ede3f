"""The values of the ledger: objects, options of stores, errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..encoding.blob_id import to_text
from .results import BlobObject, Event, StorageResource

MAX_EPOCHS_AHEAD = 53
"""The most epochs ahead of the current one for which storage can be bought."""


class StoreFailedError(Exception):
    """The chain or the wallet refuses a store; a publisher answers HTTP 500."""


class EpochsOutOfRange(StoreFailedError):
    """The store asks for 0 epochs, or for more than `MAX_EPOCHS_AHEAD`."""


class OutOfWal(StoreFailedError):
    """The wallet cannot pay."""


class ShareNeedsPermanent(StoreFailedError):
    """A deletable blob cannot be wrapped in a shared object."""


class BlobNotFound(LookupError):
    """No certified, visible and unexpired blob has this ID."""


class BlobForbidden(LookupError):
    """The blob is blocked (HTTP 451)."""


class ObjectNotFound(LookupError):
    """No blob object has this ID."""


class AfterStore(StrEnum):
    """What the publisher does with a certified object if the request names no receiver."""

    MAIN_WALLET = "main-wallet"
    """Moves the object to its main wallet, as publishers do; no later request can reuse it."""
    KEEP = "keep"
    """Leaves the object with the sub-wallet that serves requests, which can reuse it."""
    BURN = "burn"
    """Destroys the object; the content stays until its end and cannot be extended."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The query of a PUT, parsed.

    Attributes:
        epochs: Epochs ahead of the current one.
        permanent: Not deletable before its end.
        force: Certify a new object even if the blob is stored.
        reuse_resources: Use objects that the signing sub-wallet owns.
        send_object_to: Address that gets the object.
        share: Wrap the object in a shared one.
    """

    epochs: int = 1
    permanent: bool = False
    force: bool = False
    reuse_resources: bool = False
    send_object_to: str | None = None
    share: bool = False


@dataclass(slots=True)
class OwnedObject:
    """A blob object on the chain.

    Attributes:
        id: "0x" and 64 hexadecimal digits.
        blob_id: The 32 bytes.
        size: Bytes of content.
        deletable: Whether its owner may delete it.
        registered_epoch: Epoch of its registration.
        certified_epoch: Epoch of its certification, if that has happened.
        storage: The storage of the object, with its end.
        owner: Address of the owner; empty for a burnt object.
        shared_id: ID of the shared object around it, if there is one.
        attributes: Names and values attached to it.
    """

    id: str
    blob_id: bytes
    size: int
    deletable: bool
    registered_epoch: int
    certified_epoch: int | None
    storage: StorageResource
    owner: str
    shared_id: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def end_epoch(self) -> int:
        """Epoch at whose start the object ends."""
        return self.storage.end_epoch

    def shown(self) -> BlobObject:
        """Return the object as an answer shows it."""
        return BlobObject(
            id=self.id,
            registered_epoch=self.registered_epoch,
            blob_id=to_text(self.blob_id),
            size=self.size,
            certified_epoch=self.certified_epoch,
            storage=self.storage,
            deletable=self.deletable,
        )


@dataclass(frozen=True, slots=True)
class StoredContent:
    """A blob that can be read.

    Attributes:
        blob_id: The 32 bytes.
        data: The content.
        end_epoch: Epoch at whose start the blob expires.
        is_quilt: Whether it was stored as a quilt.
    """

    blob_id: bytes
    data: bytes
    end_epoch: int
    is_quilt: bool


@dataclass(slots=True)
class BlobRecord:
    """The ledger's record of a blob ID; a certification adds the content."""

    data: bytes | None = None
    objects: list[OwnedObject] = field(default_factory=list)
    visible_at: float = 0.0
    is_quilt: bool = False
    certified: Event | None = None
    invalid: Event | None = None
    blocked: bool = False

    def end_epoch(self, now: int, *, permanent: bool = False) -> int:
        """Return the latest end of the certified objects; 0 without such objects."""
        return max(
            (
                blob_object.end_epoch
                for blob_object in self.objects
                if blob_object.certified_epoch is not None
                and blob_object.end_epoch > now
                and not (permanent and blob_object.deletable)
            ),
            default=0,
        )
