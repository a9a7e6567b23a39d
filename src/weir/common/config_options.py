"""PyFlink's way to declare a configuration option in a program: `ConfigOptions.key(...)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ConfigOption", "ConfigOptions"]


@dataclass(frozen=True)
class ConfigOption:
    """A key with the name of its type and its default.

    Example:
        option = ConfigOptions.key("my.limit").int_type().default_value(10)
        Configuration().set(option.key, option.default)
    """

    key: str
    type_name: str = "string"
    default: Any = None


class ConfigOptions:
    """Start of a declaration: `ConfigOptions.key("a.b").int_type().default_value(1)`.

    Example:
        ConfigOptions.key("my.limit").int_type().default_value(10)
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Name the option."""
        return ConfigOptions.OptionBuilder(key)

    @dataclass(frozen=True)
    class OptionBuilder:
        """A named option without a type."""

        key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """Declare a boolean."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, "boolean")

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """Declare a 32-bit integer."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, "int")

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """Declare a 64-bit integer."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, "long")

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """Declare a 32-bit float."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, "float")

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """Declare a 64-bit float."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, "double")

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """Declare a text."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, "string")

    @dataclass(frozen=True)
    class TypedConfigOptionBuilder:
        """A named and typed option without a default."""

        key: str
        type_name: str

        def default_value(self, value: Any) -> ConfigOption:
            """Finish with a default."""
            return ConfigOption(self.key, self.type_name, value)

        def no_default_value(self) -> ConfigOption:
            """Finish without a default."""
            return ConfigOption(self.key, self.type_name)
