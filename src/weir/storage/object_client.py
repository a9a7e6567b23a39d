"""From a URI of an object store to the client that speaks to it.

The only module that imports `obstore`, which is an optional dependency. Requests are repeated by
the client itself: a few times, for a bounded time, and for transient errors only.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from weir.errors import UsageError
from weir.storage.options import StorageOptions

S3_SCHEMES: Final = ("s3", "s3a", "s3n")
AZURE_SCHEMES: Final = ("abfs", "abfss", "az")
OBJECT_SCHEMES: Final = (*S3_SCHEMES, "gs", *AZURE_SCHEMES)
_RETRIES: Final = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}


@dataclass(frozen=True)
class ObjectLocation:
    """A bucket or container, the account it is in where the URI says so, and a key prefix."""

    scheme: str
    bucket: str
    account: str
    prefix: str

    @property
    def uri(self) -> str:
        """The location in its shortest spelling."""
        at = f"{self.bucket}@{self.account}" if self.account else self.bucket
        return f"{self.scheme}://{at}" + (f"/{self.prefix}" if self.prefix else "")


def parse_location(uri: str) -> ObjectLocation:
    """Take a URI apart; nothing in it is percent-decoded, as in Flink and Hadoop.

    Raises:
        UsageError: the bucket is missing, the URI holds credentials, or the prefix has empty or
            hidden parts.
    """
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    bucket, _, account = authority.partition("@")
    if scheme not in AZURE_SCHEMES and account:
        msg = f"{scheme}://… holds credentials before '@': set them in the configuration instead"
        raise UsageError(msg)
    prefix = path.rstrip("/")
    if not bucket or any(not part or part in (".", "..") for part in prefix.split("/") if prefix):
        msg = f"storage URI {uri!r} is not usable: expected {scheme}://bucket/path without '..'"
        raise UsageError(msg)
    if scheme in S3_SCHEMES:
        scheme = "s3"
    elif scheme == "abfs":
        scheme = "abfss"
    return ObjectLocation(scheme, bucket, account, prefix)


def load_obstore() -> Any:
    """Return the package `obstore`.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("obstore")
    except ImportError as error:
        msg = (
            "object stores (s3://, gs://, abfss://) need the package 'obstore', which is not "
            "installed: run pip install 'weir-spark[objectstore]' on the driver and all executors"
        )
        raise UsageError(msg) from error


def connect(location: ObjectLocation, options: StorageOptions) -> Any:
    """Return a client for a bucket; no request is sent yet."""
    load_obstore()
    stores: Any = importlib.import_module("obstore.store")
    if location.scheme == "s3":
        return _s3(stores, location.bucket, options)
    if location.scheme == "gs":
        return stores.GCSStore(location.bucket, retry_config=_RETRIES)
    config = {}
    if location.account:
        config["account_name"] = location.account.partition(".")[0]
    return stores.AzureStore(location.bucket, config=config, retry_config=_RETRIES)


def _s3(stores: Any, bucket: str, options: StorageOptions) -> Any:
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    if options.s3_region:
        config["region"] = options.s3_region
    if options.s3_access_key and options.s3_secret_key:
        config["access_key_id"] = options.s3_access_key
        config["secret_access_key"] = options.s3_secret_key
    if options.s3_path_style is not None:
        config["virtual_hosted_style_request"] = not options.s3_path_style
    if options.s3_endpoint:
        config["endpoint"] = _endpoint(options.s3_endpoint, bucket, options.s3_path_style)
        client["allow_http"] = config["endpoint"].startswith("http://")
    return stores.S3Store(
        bucket, config=config, client_options=client or None, retry_config=_RETRIES
    )


def _endpoint(endpoint: str, bucket: str, path_style: bool | None) -> str:
    """Return the endpoint as the client expects it: with the bucket where the host names it."""
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    host = f"{bucket}.{parts.netloc}" if path_style is False else parts.netloc
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
