"""Options of where remote storages are and who asks, with Flink's keys where Flink has them."""

from __future__ import annotations

from weir.config.option import BOOLEAN, STRING, ConfigOption

S3_ENDPOINT = ConfigOption(
    "s3.endpoint", STRING, None, "Address of the S3 service; Amazon's by default."
)
S3_REGION = ConfigOption("s3.region", STRING, None, "Region of the S3 service.")
S3_ACCESS_KEY = ConfigOption(
    "s3.access-key", STRING, None, "Access key; the environment's credentials by default."
)
S3_SECRET_KEY = ConfigOption("s3.secret-key", STRING, None, "Secret that goes with the access key.")
S3_PATH_STYLE = ConfigOption(
    "s3.path.style.access",
    BOOLEAN,
    None,
    "Whether the bucket is part of the path, not of the host name; true by default.",
    deprecated_keys=("s3.path-style-access",),
)
WEBHDFS_ADDRESS = ConfigOption(
    "weir.storage.webhdfs-address",
    STRING,
    None,
    "Where hdfs:// finds WebHDFS: host:port, several with commas; port 9870 of the URI's host by "
    "default.",
)
