"""URL of `--blobs`, and the bucket that the URL names.

The URL never contains credentials: every user of a machine can read a program's flags. Credentials
come from the places that each cloud's own programs use.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

SCHEMES = {
    "s3": ("endpoint", "region"),
    "gs": ("endpoint",),
    "az": ("account", "endpoint"),
}
"""Kinds of store, by scheme, and the options that the query of a URL may have."""
RETRIES: RetryConfig = {
    "max_retries": 4,
    "backoff": {
        "init_backoff": timedelta(seconds=0.2),
        "max_backoff": timedelta(seconds=3),
        "base": 2,
    },
    "retry_timeout": timedelta(seconds=20),
}
"""Immediate retries of a request; the archive retries a failed flush without end."""
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=30),  # timeout of a request, which carries 5 MiB at most
}


class Place(NamedTuple):
    """A bucket, the prefix of all names in it, and options."""

    scheme: str
    bucket: str
    prefix: str
    options: dict[str, str]

    def __str__(self) -> str:
        return "/".join(filter(None, (f"{self.scheme}://{self.bucket}", self.prefix)))


def parse_place(url: str) -> Place:
    """Parse a URL; raise `ValueError`, which says in one line why the URL cannot be used."""
    parts = urlsplit(url)
    option_names = SCHEMES.get(parts.scheme)
    if option_names is None:
        raise ValueError(f"{_without_secrets(url)} begins with none of {', '.join(_url_schemes())}")
    if "@" in parts.netloc:
        raise ValueError("credentials do not belong in the URL; see docs/blobs/object-stores.md")
    if not parts.netloc or ":" in parts.netloc or parts.fragment:
        raise ValueError(f"{_without_secrets(url)} is not {parts.scheme}://BUCKET/PREFIX")
    prefix = unquote(parts.path).strip("/")
    if any(segment in ("", ".", "..") for segment in prefix.split("/")) and prefix:
        raise ValueError(f"the prefix '{prefix}' has a segment that is empty or of dots")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    for name, value in pairs:
        if name not in option_names or not value or len(options) < len(pairs):
            raise ValueError(
                f"'?{name}=' is not an option with a value, given once; {parts.scheme}:// takes "
                f"{' and '.join(option_names)}"
            )
    if urlsplit(options.get("endpoint", "https://a")).scheme not in ("http", "https"):
        raise ValueError("the endpoint is not a URL that begins with http:// or https://")
    return Place(parts.scheme, parts.netloc, prefix, options)


def open_bucket(place: Place) -> object:
    """Return `obstore`'s client of a place; sends no request yet.

    Raises `ImportError` if `obstore` is not installed, and `ValueError`, which says in one line
    what is wrong.
    """
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    options: dict[str, Any] = dict(place.options)
    common: dict[str, Any] = {
        "prefix": place.prefix or None,
        "retry_config": RETRIES,
        "client_options": {
            **_CLIENT,
            "allow_http": options.get("endpoint", "").startswith("http://"),
        },
    }
    try:
        if place.scheme == "s3":
            # Not every S3-compatible store can remove several objects with one request.
            options |= {"disable_bulk_delete": True, **_profile()}
            return S3Store(place.bucket, **common, **options)
        if place.scheme == "gs":
            if "endpoint" in options:
                options["base_url"] = options.pop("endpoint")
            return GCSStore(place.bucket, **common, **options)
        if "account" in options:
            options["account_name"] = options.pop("account")
        return AzureStore(place.bucket, **common, **options)
    except (BaseError, OSError) as error:
        problem = str(error).partition("\n")[0]
        raise ValueError(f"{place}: {problem}; see docs/blobs/object-stores.md") from None


def _profile() -> dict[str, object]:
    """Return the credentials provider of a profile in AWS's files, if one is chosen.

    `obstore` itself implements all other parts of AWS's credentials chain.
    """
    if not os.environ.get("AWS_PROFILE"):
        return {}
    try:
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ValueError(
            "AWS_PROFILE is set, and profiles need boto3, which is not installed; pip install "
            "boto3, or `aws configure export-credentials --format env`"
        ) from None
    try:
        return {"credential_provider": Boto3CredentialProvider()}
    except (BotoCoreError, ValueError) as error:
        raise ValueError(f"AWS_PROFILE cannot be used: {error}") from None


def _url_schemes() -> list[str]:
    return [f"{scheme}://" for scheme in ("file", *SCHEMES)]


def _without_secrets(url: str) -> str:
    """Return a URL with every part that may be secret removed."""
    return f"'{url.partition('?')[0].rpartition('@')[2]}'"
