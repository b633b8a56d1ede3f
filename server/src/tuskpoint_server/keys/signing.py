"""Signatures of hand-offs and receipts (Ed25519, RFC 8032).

The contract says which bytes are signed: `HandoffDescriptor.signature`,
`EraseThreadsResponse.signature`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ..core.errors import Reason, Refusal
from ..core.lineage import Descriptor

_PURPOSE = b"tuskpoint handoff v1\n"
_RECEIPT = b"tuskpoint receipt v1\n"

_P = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset((0, 1, _ORDER_8, _P - _ORDER_8, _P - 1, _P, _P + 1))
"""Y coordinates of the points of order 1, 2, 4 and 8, in every encoding of 255 bits.

As a public key such a point verifies forged signatures, over any message.
"""


class Signer:
    """Signs hand-offs and receipts with the first of several 32-byte keys.

    Attributes:
        public: The public key of each key, in lowercase hex; adopters may require any of them.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        private_keys = [Ed25519PrivateKey.from_private_bytes(key) for key in keys]
        self._first = private_keys[0]
        self.public = tuple(key.public_key().public_bytes_raw().hex() for key in private_keys)

    def sign(self, descriptor: Descriptor) -> Descriptor:
        """Return a descriptor with the signature."""
        signature = self._first.sign(signed_bytes(descriptor))
        return replace(descriptor, signer=self.public[0], signature=signature.hex())

    def receipt(self, content: bytes) -> tuple[str, str]:
        """Return the public key and the signature of a receipt, in lowercase hex."""
        return self.public[0], self._first.sign(_RECEIPT + content).hex()


def check(descriptor: Descriptor, required: Collection[str] = ()) -> None:
    """Check the signature of a descriptor, if the descriptor has one or signers are required.

    Raises:
        Refusal: `SIGNATURE_REFUSED`.
    """
    signer = descriptor.signer
    if signer:
        try:
            _check_order(bytes.fromhex(signer))
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer))
            public.verify(bytes.fromhex(descriptor.signature), signed_bytes(descriptor))
        except (InvalidSignature, ValueError):
            problem = f"its signature was not made by {signer} over these fields"
            advice = "do not trust it, and ask for the unchanged descriptor"
            raise _signing_refusal(signer, problem, advice) from None
    if required and signer not in required:
        problem = f"it is signed by {signer}" if signer else "it is not signed"
        advice = "accept it only if you know that signer, and then require it"
        raise _signing_refusal(signer, f"{problem}, and another signer is required", advice)


def _check_order(public: bytes) -> None:
    """Raise `ValueError` for a public key of small order."""
    if int.from_bytes(public, "little") % (1 << 255) in _SMALL_ORDER:
        raise ValueError("a public key of small order")


def _signing_refusal(signer: str, problem: str, advice: str) -> Refusal:
    return Refusal(Reason.SIGNATURE_REFUSED, advice=advice, signer=signer, problem=problem)


def signed_bytes(descriptor: Descriptor) -> bytes:
    """Return the signed bytes: all of the descriptor except how to open the bundle."""
    texts = (
        descriptor.thread_id,
        descriptor.checkpoint_id,
        descriptor.blob_id,
        descriptor.blob_sha256,
        descriptor.to_agent,
        descriptor.summary,
    )
    encoded = (text.encode() for text in texts)
    return _PURPOSE + b"".join(len(item).to_bytes(4, "big") + item for item in encoded)
