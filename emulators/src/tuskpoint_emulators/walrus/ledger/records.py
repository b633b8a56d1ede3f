"""What the ledger keeps and what it is asked for: values, and the errors it raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..encoding.blob_id import to_text
from .results import BlobObject, Event, StorageResource

MAX_EPOCHS_AHEAD = 53
"""How far ahead of the current epoch storage can be bought."""


class StoreFailedError(Exception):
    """A store that the chain or the wallet refuses; a publisher answers HTTP 500."""


class EpochsOutOfRange(StoreFailedError):
    """Zero epochs ahead, or more than `MAX_EPOCHS_AHEAD`."""


class OutOfWal(StoreFailedError):
    """The wallet cannot pay."""


class ShareNeedsPermanent(StoreFailedError):
    """A deletable blob cannot be wrapped in a shared object."""


class BlobNotFound(LookupError):
    """Nothing certified, visible and unexpired has this ID."""


class BlobForbidden(LookupError):
    """The blob is blocked (HTTP 451)."""


class ObjectNotFound(LookupError):
    """No blob object has this ID."""


class AfterStore(StrEnum):
    """What the publisher does with an object that it has certified and nobody asked for."""

    MAIN_WALLET = "main-wallet"
    """Moves it to its main wallet: what publishers do; no later request can reuse it."""
    KEEP = "keep"
    """Leaves it with the sub-wallet that serves requests, which can reuse it."""
    BURN = "burn"
    """Destroys the object; the content stays until its end and cannot be extended."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The query of a PUT, parsed.

    Attributes:
        epochs: Epochs ahead of the current one.
        permanent: Not deletable before its end.
        force: Always certify anew, whatever is stored.
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
        storage: Its space, and until when.
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
        """Epoch at whose start it ends."""
        return self.storage.end_epoch

    def shown(self) -> BlobObject:
        """Return the object as an answer shows it now."""
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
        end_epoch: Epoch at whose start it is gone.
        is_quilt: Whether it was stored as a quilt.
    """

    blob_id: bytes
    data: bytes
    end_epoch: int
    is_quilt: bool


@dataclass(slots=True)
class BlobRecord:
    """What the ledger knows of one blob ID; the content comes with a certification."""

    data: bytes | None = None
    objects: list[OwnedObject] = field(default_factory=list)
    visible_at: float = 0.0
    is_quilt: bool = False
    certified: Event | None = None
    invalid: Event | None = None
    blocked: bool = False

    def end_epoch(self, now: int, *, permanent: bool = False) -> int:
        """Return the latest end of the certified objects; 0 if none lives."""
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
