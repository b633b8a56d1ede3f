"""Keys in the AWS Key Management Service.

The tenant is the encryption context, so a key that was wrapped for one tenant does not unwrap for
another. KMS rotates the material of a key by itself and unwraps with older material. Credentials,
region and endpoint are configured as boto3 documents
(https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html).
"""

from __future__ import annotations

import re
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..core.errors import foreign_text
from .service import ServiceKeys, missing_key, service_unavailable, wrong_key

NAME = "AWS KMS"
TIMEOUT_S = 10.0
ATTEMPTS = 3
_SECRETS = re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b")
_MISSING = ("IncorrectKeyException", "NotFoundException", "KMSInvalidStateException")


class AwsKeys(ServiceKeys):
    """Wraps with a symmetric KMS key, named by an ID, an ARN or an alias.

    Raises:
        ValueError: No region is configured.
    """

    def __init__(self, key_id: str) -> None:
        super().__init__()
        self._key_id = key_id
        config = Config(
            connect_timeout=TIMEOUT_S,
            read_timeout=TIMEOUT_S,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        )
        try:
            self._kms: Any = boto3.client("kms", config=config)
        except BotoCoreError as error:
            raise ValueError(str(error)) from None

    def ask(self, verb: str, tenant: str, data: bytes) -> bytes:
        """See `ServiceKeys`."""
        context = {"tuskpoint-tenant": tenant}
        try:
            if verb == "wrap":
                answer = self._kms.encrypt(
                    KeyId=self._key_id, Plaintext=data, EncryptionContext=context
                )
                return bytes(answer["CiphertextBlob"])
            answer = self._kms.decrypt(CiphertextBlob=data, EncryptionContext=context)
            return bytes(answer["Plaintext"])
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            problem = foreign_text(str(error), _SECRETS)
            if verb == "unwrap" and code == "InvalidCiphertextException":
                raise wrong_key(tenant, problem) from None
            if verb == "unwrap" and code in _MISSING:
                raise missing_key(tenant, problem) from None
            raise service_unavailable(NAME, problem) from None
        except BotoCoreError as error:
            raise service_unavailable(NAME, foreign_text(str(error), _SECRETS)) from None
