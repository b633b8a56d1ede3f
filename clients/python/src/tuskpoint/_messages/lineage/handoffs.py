"""Records and requests of hand-offs: descriptor, outcome of an adoption. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Literal

from ...errors import InvalidDescriptor, ServerError
from ...v1 import handoff_service_pb2 as handoffs
from ..arguments import check_given_texts, checked_texts, invalid_field, is_unicode
from ..records import DurabilityName
from ..requests import durability, ref

StageName = Literal["fetching", "fetched", "verified", "adopted"]

_STAGES: dict[int, StageName] = {
    handoffs.ADOPT_STAGE_FETCHING: "fetching",
    handoffs.ADOPT_STAGE_FETCHED: "fetched",
    handoffs.ADOPT_STAGE_VERIFIED: "verified",
    handoffs.ADOPT_STAGE_ADOPTED: "adopted",
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]+")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_MAX_SEALED_KEY = 4096
_MAY_BE_EMPTY = ("to_agent", "summary")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A small portable description of a checkpoint that was handed off.

    Attributes:
        source: The checkpoint that was handed off, "thread:checkpoint".
        thread_id: Thread of the checkpoint.
        checkpoint_id: ID of the checkpoint.
        blob_id: Blob with everything that is needed to continue from the checkpoint.
        blob_sha256: SHA-256 of the blob's bytes, as lowercase hex. The adopting server trusts only
            this hash.
        to_agent: The receiving agent; may be empty.
        summary: One sentence about the state of the agent.
        key: Key that opens a sealed blob, as lowercase hex; empty if it was not requested. Whoever
            has the key can read the checkpoint.
        signer: Public key of the server that handed off, as lowercase hex; empty if the server does
            not sign.
        signature: Signature of the server that handed off, as lowercase hex. The adopting server
            checks it.
        sealed_key: The blob's key, sealed to the recipient of the hand-off: base64 of a file of
            age; empty if the hand-off names no recipient.
        handoff_id: ID of the offer in the receiver's inbox; only in the answer of `handoff`, and
            empty if the server made no offer. No key of a descriptor.
    """

    source: str
    thread_id: str
    checkpoint_id: str
    blob_id: str
    blob_sha256: str
    to_agent: str
    summary: str
    key: str = field(default="", repr=False)
    signer: str = ""
    signature: str = ""
    sealed_key: str = ""
    handoff_id: str = field(default="", compare=False)

    def as_dict(self) -> dict[str, str]:
        """Return a mapping with the keys of a descriptor, without empty optional keys."""
        members = asdict(self)
        del members["handoff_id"]
        return {key: text for key, text in members.items() if text or key in KEYS}

    def to_json(self) -> str:
        """Return JSON text with the keys of a descriptor, for the receiving agent."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


DescriptorLike = Descriptor | Mapping[str, Any] | str | bytes | handoffs.HandoffDescriptor
KEYS = tuple(field.name for field in fields(Descriptor) if field.default is MISSING)
_HEX_DIGITS = {"key": 64, "signer": 64, "signature": 128}
_FURTHER = (*_HEX_DIGITS, "sealed_key")  # keys that a descriptor may omit


@dataclass(frozen=True, slots=True)
class AdoptProgress:
    """The progress of an adoption.

    Attributes:
        stage: "fetching", "fetched", "verified" (the hash is right) or "adopted".
        fetched_bytes: Bytes fetched so far.
    """

    stage: StageName
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class Adoption:
    """The outcome of an adoption.

    Attributes:
        adopted_from: The adopted checkpoint, "thread:checkpoint".
        new_thread_id: The new thread.
        checkpoint_id: First checkpoint of the new thread.
        blob_id: Blob with the adopted checkpoint in the new thread; empty until that checkpoint is
            certified.
        verified: Always true: an adoption includes the check of the hash.
        signer: Public key of the server that signed the descriptor; empty if it has no signature.
    """

    adopted_from: str
    new_thread_id: str
    checkpoint_id: str
    blob_id: str
    verified: bool
    signer: str = ""


def read_descriptor(given: DescriptorLike) -> Descriptor:
    """Return a descriptor from any of its forms.

    Args:
        given: A `Descriptor`, a mapping or JSON text with exactly the keys of a descriptor, or the
            contract's message.

    Raises:
        InvalidDescriptor: The descriptor is malformed, or contradicts itself.
    """
    if isinstance(given, Descriptor):
        members: Mapping[Any, Any] = given.as_dict()
    elif isinstance(given, handoffs.HandoffDescriptor):
        members = {key: getattr(given, key) for key in (*KEYS, *_FURTHER)}
    else:
        members = _parsed(given) if isinstance(given, str | bytes) else given
    if not isinstance(members, Mapping):
        raise _invalid("", f"it must be an object with keys {', '.join(KEYS)}, not {members!r:.80}")
    _check_keys(members)
    for key in KEYS:
        _check_text(key, members[key])
    if not _SHA256.fullmatch(members["blob_sha256"]):
        raise _invalid("blob_sha256", "it must be 64 lowercase hex digits")
    if members["source"] != f"{members['thread_id']}:{members['checkpoint_id']}":
        raise _invalid("source", "it must be the thread and the checkpoint, joined by a colon")
    for key, digits in _HEX_DIGITS.items():
        text = members.get(key, "")
        if text != "" and not (
            isinstance(text, str) and len(text) == digits and _HEX.fullmatch(text)
        ):
            raise _invalid(key, f"it must be {digits} lowercase hex digits, or missing")
    if bool(members.get("signer")) != bool(members.get("signature")):
        raise _invalid("signature", "it must come with signer, or neither")
    sealed_key = members.get("sealed_key", "")
    if not isinstance(sealed_key, str) or not _BASE64.fullmatch(sealed_key):
        raise _invalid("sealed_key", "it must be base64, or missing")
    if len(sealed_key) > _MAX_SEALED_KEY:
        raise _invalid("sealed_key", f"it must have at most {_MAX_SEALED_KEY} characters")
    return Descriptor(**{key: members[key] for key in (*KEYS, *_FURTHER) if key in members})


def handing_off(
    thread_id: str,
    checkpoint_id: str | None,
    checkpoint_ns: str,
    to_agent: str | None,
    *,
    include_key: bool = False,
    recipient: str | None = None,
    expires_in_s: float | None = None,
) -> handoffs.CreateHandoffRequest:
    """Return the request that hands a checkpoint off.

    Raises:
        InvalidRequest: `expires_in_s` is not above 0, or a text cannot be sent.
    """
    check_given_texts(to_agent=to_agent, recipient=recipient)
    request = handoffs.CreateHandoffRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id),
        to_agent=to_agent or "",
        include_key=include_key,
        recipient=recipient or "",
    )
    if expires_in_s is not None:
        if not 0 < expires_in_s < timedelta.max.total_seconds():
            raise invalid_field("expires_in_s", f"it must be above 0, not {expires_in_s!r}")
        request.expires_in.FromTimedelta(timedelta(seconds=expires_in_s))
    return request


def handed_off(answer: handoffs.CreateHandoffResponse) -> Descriptor:
    """Return the descriptor of a hand-off, with the ID of its offer."""
    return replace(read_descriptor(answer.descriptor), handoff_id=answer.handoff_id)


def given_descriptor(
    descriptor: DescriptorLike | None, handoff_json: DescriptorLike | None
) -> DescriptorLike:
    """Return the descriptor, which the caller gives under one of two names.

    Raises:
        InvalidDescriptor: The descriptor is given under neither or both names.
    """
    if descriptor is not None and handoff_json is not None:
        raise _invalid("", "it is given twice, as descriptor and as handoff_json")
    handoff = handoff_json if descriptor is None else descriptor
    if handoff is None:
        raise _invalid("", f"it is missing: an object with keys {', '.join(KEYS)}")
    return handoff


def adopting(
    descriptor: DescriptorLike,
    new_thread_id: str | None,
    safe: DurabilityName,
    signers: Sequence[str] = (),
) -> handoffs.AdoptHandoffRequest:
    """Return the request that adopts a hand-off.

    Raises:
        InvalidDescriptor: See `read_descriptor`.
        InvalidRequest: A text cannot be sent.
    """
    check_given_texts(new_thread_id=new_thread_id)
    return handoffs.AdoptHandoffRequest(
        descriptor=handoffs.HandoffDescriptor(**read_descriptor(descriptor).as_dict()),
        new_thread_id=new_thread_id or "",
        durability=durability(safe),
        required_signers=checked_texts("require_signers", signers),
    )


class AdoptionCollector:
    """Collects the frames of an adoption.

    Args:
        on_progress: Called with each stage.
    """

    def __init__(self, on_progress: Callable[[AdoptProgress], object] | None = None) -> None:
        self._on_progress = on_progress
        self._adoption: Adoption | None = None

    def add(self, frame: handoffs.AdoptHandoffResponse) -> None:
        """Add the next frame."""
        if frame.HasField("adoption"):
            adoption = frame.adoption
            self._adoption = Adoption(
                **{field.name: getattr(adoption, field.name) for field in fields(Adoption)}
            )
        stage = _STAGES.get(frame.stage)
        if self._on_progress is not None and stage is not None:
            self._on_progress(AdoptProgress(stage, frame.fetched_bytes))

    def end(self) -> Adoption:
        """Return the outcome after the end of the stream.

        Raises:
            ServerError: The stream has no outcome, or the server did not check the hash.
        """
        if self._adoption is None or not self._adoption.verified:
            raise ServerError("the server's stream ended without an adoption", status="INTERNAL")
        return self._adoption


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _invalid("", f"it is not JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key comes twice")
    return members


def _check_keys(members: Mapping[Any, Any]) -> None:
    missing = [key for key in KEYS if key not in members]
    if missing:
        raise _invalid(missing[0], f"the descriptor lacks {', '.join(missing)}")
    extra = [str(key) for key in members if key not in KEYS and key not in _FURTHER]
    if extra:
        raise _invalid(extra[0], f"a descriptor has no {', '.join(extra)}")


def _check_text(key: str, text: Any) -> None:
    if not isinstance(text, str):
        raise _invalid(key, f"it must be a string, not {text!r:.80}")
    if not text and key not in _MAY_BE_EMPTY:
        raise _invalid(key, "it must not be empty")
    if not is_unicode(text):
        raise _invalid(key, "it cannot be written in UTF-8")


def _invalid(key: str, problem: str) -> InvalidDescriptor:
    field = f"descriptor.{key}" if key else "descriptor"
    return InvalidDescriptor(
        f"{field}: {problem}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": field},
    )
