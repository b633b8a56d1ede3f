"""Keys in HashiCorp Vault's Transit engine.

The tenant is associated data, so a key that was wrapped for one tenant does not unwrap for another.
A wrapped key names the version of the Transit key that wrapped it: `vault:v3:...`. Vault's own
variables apply: VAULT_ADDR, VAULT_TOKEN, VAULT_NAMESPACE, VAULT_CACERT
(https://developer.hashicorp.com/vault/api-docs/secret/transit).
"""

from __future__ import annotations

import base64
import os
import re
from typing import Any

import hvac  # type: ignore[import-untyped]
from hvac.exceptions import InvalidRequest, VaultError  # type: ignore[import-untyped]
from requests.exceptions import RequestException

from ..core.errors import foreign_text
from .service import ServiceKeys, missing_key, service_unavailable, wrong_key

NAME = "Vault"
TIMEOUT_S = 10.0
_VERSION = re.compile(rb"vault:v\d+:")
# Vault's errors about missing versions of a key
_GONE = ("not found", "disallowed by policy", "no key version")
_SECRETS = re.compile(r"\b(hvs|hvb|s)\.[A-Za-z0-9_-]{8,}|vault:v\d+:\S+")


class VaultKeys(ServiceKeys):
    """Wraps with a Transit key.

    Args:
        place: MOUNT/KEY, such as `transit/tuskpoint`. The type of the key must support associated
            data, such as aes256-gcm96.

    Raises:
        ValueError: The place is not MOUNT/KEY.
    """

    def __init__(self, place: str) -> None:
        super().__init__()
        self._mount, slash, self._name = place.strip("/").rpartition("/")
        if not slash or not self._mount or not self._name:
            raise ValueError(f"a Transit key is named MOUNT/KEY, such as transit/{place}")
        certificates = os.environ.get("VAULT_CACERT")
        self._client = hvac.Client(timeout=TIMEOUT_S, verify=certificates or True)
        self._version = b""  # version of the Transit key that wrapped last

    def ask(self, verb: str, tenant: str, data: bytes) -> bytes:
        """See `ServiceKeys`."""
        # Read for each call: Vault's agent renews a token in place.
        if token := os.environ.get("VAULT_TOKEN"):
            self._client.token = token
        transit: Any = self._client.secrets.transit
        common = {
            "mount_point": self._mount,
            "associated_data": base64.b64encode(tenant.encode()).decode(),
        }
        try:
            if verb == "wrap":
                plain = base64.b64encode(data).decode()
                answer = transit.encrypt_data(self._name, plaintext=plain, **common)
                wrapped = answer["data"]["ciphertext"].encode()
                match = _VERSION.match(wrapped)
                self._version = match[0] if match else b""
                return wrapped  # type: ignore[no-any-return]
            answer = transit.decrypt_data(
                self._name, ciphertext=data.decode(errors="replace"), **common
            )
            return base64.b64decode(answer["data"]["plaintext"])
        except InvalidRequest as error:
            problem = foreign_text(str(error), _SECRETS)
            if verb == "wrap":
                raise service_unavailable(NAME, problem) from None
            if any(word in problem for word in _GONE):
                raise missing_key(tenant, problem) from None
            raise wrong_key(tenant, problem) from None
        except (VaultError, RequestException) as error:
            message = foreign_text(str(error), _SECRETS) or type(error).__name__
            raise service_unavailable(NAME, message) from None
        except (KeyError, TypeError, ValueError):
            problem = "it returned an unexpected response; check VAULT_ADDR"
            raise service_unavailable(NAME, problem) from None

    def is_current(self, wrapped: bytes) -> bool:
        """Return whether the version that wrapped this key is the one that wrapped last."""
        return not self._version or wrapped.startswith(self._version)
