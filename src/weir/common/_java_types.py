"""Registrations of Java types and serialisers that programs of PyFlink 1.13 to 1.16 make.

They are kept, so that who asks gets them back, and change nothing, which is said once.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from weir.notices import warn_once

log = logging.getLogger("weir.common")
R = TypeVar("R", bound="JavaTypes")


def warn_of_java_types(call: str) -> None:
    """Say once that a registration changes nothing."""
    warn_once(log, f"{call}() has no effect, because there are no Java objects to serialise")


class JavaTypes:
    """What a program says about Java's types."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._default_serializers: dict[str, str] = {}
        self._serializers: dict[str, str] = {}
        self._pojo_types: list[str] = []
        self._kryo_types: list[str] = []
        self._auto_type_registration = True

    def add_default_kryo_serializer(self: R, type_class_name: str, serializer_class_name: str) -> R:
        """Keep the default serialiser of a type; it has no effect."""
        warn_of_java_types("add_default_kryo_serializer")
        self._default_serializers[type_class_name] = serializer_class_name
        return self

    def register_type_with_kryo_serializer(
        self: R, type_class_name: str, serializer_class_name: str
    ) -> R:
        """Keep the serialiser of a type; it has no effect."""
        warn_of_java_types("register_type_with_kryo_serializer")
        self._serializers[type_class_name] = serializer_class_name
        return self

    def register_pojo_type(self: R, type_class_name: str) -> R:
        """Keep the name of a type; it has no effect."""
        warn_of_java_types("register_pojo_type")
        self._pojo_types.append(type_class_name)
        return self

    def register_kryo_type(self: R, type_class_name: str) -> R:
        """Keep the name of a type; it has no effect."""
        warn_of_java_types("register_kryo_type")
        self._kryo_types.append(type_class_name)
        return self

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return the default serialisers by type."""
        return dict(self._default_serializers)

    def get_registered_types_with_kryo_serializer_classes(self) -> dict[str, str]:
        """Return the serialisers by type."""
        return dict(self._serializers)

    def get_registered_pojo_types(self) -> list[str]:
        """Return the names that `register_pojo_type` was given."""
        return list(self._pojo_types)

    def get_registered_kryo_types(self) -> list[str]:
        """Return the names that `register_kryo_type` was given."""
        return list(self._kryo_types)

    def disable_auto_type_registration(self: R) -> R:
        """Keep the setting; it has no effect."""
        warn_of_java_types("disable_auto_type_registration")
        self._auto_type_registration = False
        return self

    def is_auto_type_registration_disabled(self) -> bool:
        """Tell whether `disable_auto_type_registration` was called."""
        return not self._auto_type_registration
