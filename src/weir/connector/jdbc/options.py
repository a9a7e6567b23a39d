"""PyFlink's options of `JdbcSink`: where the database is, and when a batch is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weir.connector.jdbc.dialect import dialect_of, shown_url
from weir.errors import UsageError


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Where the database is, and who asks; the password is shown nowhere.

    Example:
        options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        options = options.with_url("jdbc:postgresql://host/shop").with_user_name("weir").build()
    """

    url: str
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)
    driver_name: str | None = None

    def __repr__(self) -> str:
        """Show where and who, without what stands behind the question mark of the URL."""
        return f"JdbcConnectionOptions({self.place!r}, {self.user_name!r})"

    @property
    def place(self) -> str:
        """Return the URL as it may be shown: its parameters can hold a password."""
        return shown_url(self.url)

    def get_db_url(self) -> str:
        """Return the URL of the database."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return the name of the Java driver, which is not used."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return the name of the user."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    class JdbcConnectionOptionsBuilder:
        """PyFlink's builder; every method returns the builder."""

        def __init__(self) -> None:
            """Begin with nothing set."""
            self._url: str | None = None
            self._user: str | None = None
            self._password: str | None = None
            self._driver: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Say where, such as `jdbc:postgresql://host:port/database`."""
            self._url = url
            return self

        def with_driver_name(
            self, driver_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Take the name of Java's driver, which is not used."""
            self._driver = driver_name
            return self

        def with_user_name(
            self, user_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Say who asks."""
            self._user = user_name
            return self

        def with_password(
            self, password: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Give the password."""
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """Return the options; `UsageError` for a database that is not known here."""
            options = JdbcConnectionOptions(
                self._url or "", self._user, self._password, self._driver
            )
            dialect_of(options.url).arguments(options)
            return options


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """When a batch is written, and how often it is tried again.

    Example:
        JdbcExecutionOptions.builder().with_batch_size(500).with_max_retries(5).build()
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3
    Builder: ClassVar[type[JdbcExecutionOptionsBuilder]]

    def get_batch_interval_ms(self) -> int:
        """Return after how many milliseconds a batch is written."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return after how many records a batch is written."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return how often a failed batch is tried again."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return the options that hold where none are given."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptionsBuilder:
        """Begin with the defaults."""
        return JdbcExecutionOptionsBuilder()


class JdbcExecutionOptionsBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = JdbcExecutionOptions.builder()  # a JdbcExecutionOptionsBuilder
        builder.with_batch_interval_ms(200).build()
    """

    def __init__(self) -> None:
        """Begin with the defaults."""
        self._made = {"batch_interval_ms": 0, "batch_size": 5000, "max_retries": 3}

    def _set(self, name: str, value: int, least: int) -> JdbcExecutionOptionsBuilder:
        if not isinstance(value, int) or value < least:
            msg = f"with_{name}: {value!r}, expected a number >= {least}"
            raise UsageError(msg)
        self._made[name] = value
        return self

    def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptionsBuilder:
        """Write a batch when it is this old; 0 for never. Looked at when records come.

        At the latest a batch is written with the next checkpoint.
        """
        return self._set("batch_interval_ms", interval_ms, 0)

    def with_batch_size(self, size: int) -> JdbcExecutionOptionsBuilder:
        """Write a batch when it has so many rows."""
        return self._set("batch_size", size, 1)

    def with_max_retries(self, max_retries: int) -> JdbcExecutionOptionsBuilder:
        """Try a batch again so often, after 1, 2, 3… seconds, before the attempt fails."""
        return self._set("max_retries", max_retries, 0)

    def build(self) -> JdbcExecutionOptions:
        """Return the options."""
        return JdbcExecutionOptions(**self._made)


JdbcExecutionOptions.Builder = JdbcExecutionOptionsBuilder
