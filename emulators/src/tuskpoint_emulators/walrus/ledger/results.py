"""The results of stores, which convert themselves to Walrus's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

ENCODING_TYPE = "RS2"


@dataclass(frozen=True, slots=True)
class StorageResource:
    """Bought storage: `encoded_bytes` from `start_epoch` until the start of `end_epoch`."""

    id: str
    start_epoch: int
    end_epoch: int
    encoded_bytes: int

    def to_json(self) -> Json:
        """Return the JSON object `storage`."""
        return {
            "id": self.id,
            "startEpoch": self.start_epoch,
            "endEpoch": self.end_epoch,
            "storageSize": self.encoded_bytes,
        }


@dataclass(frozen=True, slots=True)
class BlobObject:
    """A blob object as an answer shows it.

    Attributes:
        id: Object ID, "0x" and 64 hexadecimal digits.
        registered_epoch: Epoch of its registration.
        blob_id: Text form of the blob ID.
        size: Bytes of content, before encoding.
        certified_epoch: Epoch of its certification; `None` in the answer that registers the object.
        storage: The storage of the object.
        deletable: Whether the owner may delete the object before its end.
    """

    id: str
    registered_epoch: int
    blob_id: str
    size: int
    certified_epoch: int | None
    storage: StorageResource
    deletable: bool

    def to_json(self) -> Json:
        """Return the JSON object `blobObject`."""
        return {
            "id": self.id,
            "registeredEpoch": self.registered_epoch,
            "blobId": self.blob_id,
            "size": self.size,
            "encodingType": ENCODING_TYPE,
            "certifiedEpoch": self.certified_epoch,
            "storage": self.storage.to_json(),
            "deletable": self.deletable,
        }


@dataclass(frozen=True, slots=True)
class RegisterFromScratch:
    """New storage and a new registration, at the full price."""

    encoded_bytes: int
    epochs_ahead: int

    def to_json(self) -> Json:
        """Return the JSON object `resourceOperation`."""
        return {
            "registerFromScratch": {
                "encodedLength": self.encoded_bytes,
                "epochsAhead": self.epochs_ahead,
            }
        }


@dataclass(frozen=True, slots=True)
class ReuseStorage:
    """A new registration in storage that the wallet had."""

    encoded_bytes: int

    def to_json(self) -> Json:
        """Return the JSON object `resourceOperation`."""
        return {"reuseStorage": {"encodedLength": self.encoded_bytes}}


@dataclass(frozen=True, slots=True)
class ReuseRegistration:
    """An uncertified registration of the wallet that is long enough."""

    encoded_bytes: int

    def to_json(self) -> Json:
        """Return the JSON object `resourceOperation`."""
        return {"reuseRegistration": {"encodedLength": self.encoded_bytes}}


@dataclass(frozen=True, slots=True)
class ReuseAndExtend:
    """An extended object of the wallet; `certified` says whether it was certified before."""

    encoded_bytes: int
    epochs_extended: int
    certified: bool

    def to_json(self) -> Json:
        """Return the JSON object `resourceOperation`."""
        name = "reuseAndExtend" if self.certified else "reuseAndExtendNonCertified"
        return {name: {"encodedLength": self.encoded_bytes, "epochsExtended": self.epochs_extended}}


ResourceOperation: TypeAlias = (
    RegisterFromScratch | ReuseStorage | ReuseRegistration | ReuseAndExtend
)


@dataclass(frozen=True, slots=True)
class Event:
    """A chain event: the digest of its transaction in base58, and its place in it."""

    tx_digest: str
    event_seq: str

    def to_json(self) -> Json:
        """Return the JSON object `event`."""
        return {"txDigest": self.tx_digest, "eventSeq": self.event_seq}


@dataclass(frozen=True, slots=True)
class NewlyCreated:
    """A registration was made or used, and certified.

    Attributes:
        blob_object: The object.
        resource_operation: How the storage was obtained.
        cost: Price in FROST, without gas.
        shared_blob_object: ID of the shared object around it, if the request asked for one.
    """

    blob_object: BlobObject
    resource_operation: ResourceOperation
    cost: int
    shared_blob_object: str | None = None

    def to_json(self) -> Json:
        """Return the whole answer."""
        body: Json = {
            "blobObject": self.blob_object.to_json(),
            "resourceOperation": self.resource_operation.to_json(),
            "cost": self.cost,
        }
        if self.shared_blob_object is not None:
            body["sharedBlobObject"] = self.shared_blob_object
        return {"newlyCreated": body}


@dataclass(frozen=True, slots=True)
class AlreadyCertified:
    """The blob is stored for long enough: the store did nothing and paid nothing.

    Attributes:
        blob_id: Text form of the blob ID.
        end_epoch: Epoch at whose start the blob ends.
        proof: The event that certified a permanent blob, or the ID of an object that the
            wallet owns.
    """

    blob_id: str
    end_epoch: int
    proof: Event | str

    def to_json(self) -> Json:
        """Return the whole answer."""
        body: Json = {"blobId": self.blob_id}
        if isinstance(self.proof, Event):
            body["event"] = self.proof.to_json()
        else:
            body["object"] = self.proof
        body["endEpoch"] = self.end_epoch
        return {"alreadyCertified": body}


@dataclass(frozen=True, slots=True)
class MarkedInvalid:
    """The network has recorded that this blob ID is inconsistent."""

    blob_id: str
    event: Event

    def to_json(self) -> Json:
        """Return the whole answer."""
        return {"markedInvalid": {"blobId": self.blob_id, "event": self.event.to_json()}}


@dataclass(frozen=True, slots=True)
class StoreError:
    """A step failed for this blob alone; the publisher answers HTTP 200.

    Attributes:
        blob_id: Text form of the blob ID; `None` before the blob was encoded.
        failure_phase: The step.
        error_msg: What happened.
    """

    blob_id: str | None
    failure_phase: str
    error_msg: str

    def to_json(self) -> Json:
        """Return the whole answer."""
        return {
            "error": {
                "blobId": self.blob_id,
                "failurePhase": self.failure_phase,
                "errorMsg": self.error_msg,
            }
        }


StoreResult: TypeAlias = NewlyCreated | AlreadyCertified | MarkedInvalid | StoreError
