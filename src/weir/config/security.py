"""Options of TLS, with Flink's keys where Flink has them; PEM files instead of its keystores."""

from __future__ import annotations

from weir.config.option import BOOLEAN, STRING, ConfigOption

REST_ENABLED = ConfigOption(
    "security.ssl.rest.enabled",
    BOOLEAN,
    False,
    "Whether REST speaks TLS, and nothing else.",
)
REST_AUTHENTICATION = ConfigOption(
    "security.ssl.rest.authentication-enabled",
    BOOLEAN,
    False,
    "Whether clients of REST have to show a certificate of the same CA, too.",
)
INTERNAL_ENABLED = ConfigOption(
    "security.ssl.internal.enabled",
    BOOLEAN,
    False,
    "Whether driver, slots and Spark's workers speak TLS between hosts; both sides show their "
    "certificate. On one host they use Unix sockets.",
)
CERTIFICATE = ConfigOption(
    "weir.ssl.certificate",
    STRING,
    None,
    "File with the certificate of this host, at the same path on every host; "
    "`weir certificates` makes one.",
)
KEY = ConfigOption(
    "weir.ssl.key",
    STRING,
    None,
    "File with the private key of the certificate, without a password.",
)
CA = ConfigOption(
    "weir.ssl.ca",
    STRING,
    None,
    "File with the certificates of the authorities that the other side is trusted by.",
)
