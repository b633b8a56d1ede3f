"""Groups: a keyframe of a channel, and later values that are stored as patches of the keyframe.

A patch is never based on a patch. This module decides which value starts a group and which becomes
a patch. Only the writer knows whether the keyframe is stored, so the whole value accompanies its
patch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from ...core.limits import KIB, MIB
from ...core.values import Encoding, PackedValue, compress, patch, unpack

MIN_GROUPED = 4 * KIB  # bytes below which a value is stored alone
MAX_GROUPED = 8 * MIB  # bytes above which a value is stored alone
MAX_PATCHES = 64  # patches along a channel's ancestry after which a new keyframe starts
FAILURES = 3  # patches in a row that saved too little, after which most are not tried
TRIED_AFTER_FAILURES = 16  # then a patch of one value in this number is tried
CACHED_BYTES = 32 * MIB
_GROUP_BYTES = 600  # estimated bytes of a group, without keyframe and name


@dataclass(slots=True)
class _Group:
    """The group for a channel's next value; `whole` is the keyframe."""

    digest: bytes
    size: int
    whole: PackedValue
    patches: int = 0
    patch_bytes: int = 0
    failures: int = 0
    untried: int = 0
    gone: bool = False

    def is_full(self) -> bool:
        return self.patches >= MAX_PATCHES or self.patch_bytes > len(self.whole.data)

    def keyframe(self) -> bytes:
        return unpack(self.whole.encoding, self.whole.data, self.size, None, self.size)


@dataclass(slots=True)
class PreparedValue:
    """A value prepared for storage."""

    value: bytes
    patched: PackedValue | None = None  # on `patched.keyframe`
    patches: int = 0  # earlier patches of the keyframe, along the channel's ancestry
    patch_bytes: int = 0  # bytes of the patches, this patch included
    _whole: PackedValue | None = field(default=None, repr=False)
    _group: _Group | None = field(default=None, repr=False)

    @property
    def whole(self) -> PackedValue:
        """The value without a patch; if the value has a patch, it is compressed at first use."""
        if self._whole is None:
            self._whole = compress(self.value)
        return self._whole

    @property
    def size_bytes(self) -> int:
        """Stored bytes: of the patch, if the value has one."""
        return len(self.patched.data if self.patched is not None else self.whole.data)

    def stored(self, is_keyframe: Callable[[bytes], bool]) -> tuple[PackedValue, int, int]:
        """Return the bytes to store, and two counts to store beside the bytes.

        `is_keyframe` returns whether the value of a digest is stored in the same family, with its
        data, and is not a patch. A patch whose keyframe is not stored ends its group.
        """
        patched = self.patched
        if patched is None or patched.keyframe is None:
            return self.whole, 0, 0
        if is_keyframe(patched.keyframe):
            return patched, self.patches, self.patch_bytes
        if self._group is not None:
            self._group.gone = True
        return self.whole, 0, 0


_Key = tuple[str, str, str, str]


class Keyframes:
    """Keyframes of recently saved channels, compressed, bounded in bytes; safe between threads.

    The cache may name unstored keyframes: the writer checks (`PreparedValue.stored`).
    """

    def __init__(self, limit_bytes: int = CACHED_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._groups: OrderedDict[_Key, _Group] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the kept keyframes."""
        return self._bytes

    def prepare(
        self,
        tenant: str,
        thread_id: str,
        checkpoint_ns: str,
        channel: str,
        value: bytes,
        digest: bytes,
    ) -> PreparedValue:
        """Return a channel's next value, prepared for storage."""
        if not MIN_GROUPED <= len(value) <= MAX_GROUPED:
            return PreparedValue(value, _whole=compress(value))
        key = (tenant, thread_id, checkpoint_ns, channel)
        with self._lock:
            group = self._groups.get(key)
            if group is not None:
                self._groups.move_to_end(key)
        if group is None or group.gone:
            return self._begin(key, value, digest, None)
        if group.digest == digest:
            return PreparedValue(value, _whole=group.whole)
        if group.is_full() or not self._is_tried(group):
            return self._begin(key, value, digest, group)
        patched = patch(value, group.keyframe())
        compressed_bytes = len(value) * len(group.whole.data) // group.size
        with self._lock:
            if 2 * len(patched) < compressed_bytes:
                prepared = PreparedValue(
                    value,
                    PackedValue(Encoding.PATCH, patched, group.digest),
                    group.patches,
                    group.patch_bytes + len(patched),
                    _group=group,
                )
                group.patches += 1
                group.patch_bytes += len(patched)
                group.failures = group.untried = 0
                return prepared
            group.failures += 1
            group.untried = 0
        return self._begin(key, value, digest, group)

    def share(self, tenant: str, source: str, target: str) -> None:
        """Let a thread continue the groups of the thread that it was forked or copied from."""
        with self._lock:
            groups = [
                (key, group)
                for key, group in self._groups.items()
                if key[0] == tenant and key[1] == source and not group.gone
            ]
            for (_, _, *place), group in groups:
                new_group = _Group(
                    group.digest, group.size, group.whole, group.patches, group.patch_bytes
                )
                self._keep((tenant, target, place[0], place[1]), new_group)

    def _is_tried(self, group: _Group) -> bool:
        with self._lock:
            if group.failures < FAILURES:
                return True
            group.untried += 1
            return group.untried >= TRIED_AFTER_FAILURES

    def _begin(
        self, key: _Key, value: bytes, digest: bytes, previous: _Group | None
    ) -> PreparedValue:
        """Make a value the keyframe of a new group, which keeps the count of failures."""
        whole = compress(value)
        group = _Group(digest, len(value), whole)
        with self._lock:
            if previous is not None:
                group.failures, group.untried = previous.failures, previous.untried
            self._keep(key, group)
        return PreparedValue(value, _whole=whole)

    def _keep(self, key: _Key, group: _Group) -> None:
        if key in self._groups:
            self._bytes -= _size_of(key, self._groups.pop(key))
        self._groups[key] = group
        self._bytes += _size_of(key, group)
        while self._bytes > self._limit and self._groups:
            oldest_key, oldest_group = self._groups.popitem(last=False)
            self._bytes -= _size_of(oldest_key, oldest_group)


def _size_of(key: _Key, group: _Group) -> int:
    return _GROUP_BYTES + len(group.whole.data) + 2 * sum(len(part) for part in key)
