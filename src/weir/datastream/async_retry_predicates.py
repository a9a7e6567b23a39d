"""Usual reasons to try again, for the strategies of `weir.datastream.async_retry_strategies`."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: Any) -> bool:
    """Try again when there is no result, or none in it."""
    return result is None or len(result) == 0


def has_exception_predicate(error: BaseException | None) -> bool:
    """Try again after every exception."""
    return error is not None


def exception_type_predicate(
    error: BaseException | None,
    expected_error_type: type[BaseException] | tuple[type[BaseException], ...],
) -> bool:
    """Try again after an exception of a type; bind the type with a lambda or `partial`."""
    return isinstance(error, expected_error_type)
