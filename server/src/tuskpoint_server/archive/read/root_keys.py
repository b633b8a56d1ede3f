"""Keys of roots: catalogs, bundles and folded manifests, which people name."""

from __future__ import annotations

from dataclasses import replace

from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation
from ...keys.provider import KeyProvider
from ..formats import sealing
from ..formats.sealing import NO_ROOT, Root, is_sealed, wrapped_key


async def new_root(keys: KeyProvider | None, tenant: str) -> Root:
    """Return the key of a new root, empty if nothing is sealed; refuse as the key provider does."""
    if keys is None:
        return NO_ROOT
    key = sealing.new_key()
    return Root(key, await keys.wrap(tenant, key))


async def with_root_key(
    keys: KeyProvider | None, tenant: str, data: bytes, location: BlobLocation
) -> BlobLocation:
    """Return a root's location with the key in the root's header, unless it has a key already.

    Raises:
        Refusal: `KEY_MISSING` if the root is sealed and no key provider can open it; any refusal of
            the key provider.
    """
    if location.key or not is_sealed(data):
        return location
    wrapped = wrapped_key(data, location.blob_id)
    if keys is None or not wrapped:
        problem = "no key for it is known here" if keys else "this server has no key provider"
        raise Refusal(Reason.KEY_MISSING, what=f"blob {location.blob_id}", problem=problem)
    return replace(location, key=await keys.unwrap(tenant, wrapped))
