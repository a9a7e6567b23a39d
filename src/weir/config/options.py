"""All options that Weir knows, by key and by old spelling.

The options themselves are constants of `weir.config.checkpointing`, `backend`,
`execution`, `queryable`, `rest`, `security` and `storage`.
"""

from __future__ import annotations

from types import ModuleType

from weir.config import backend, checkpointing, execution, queryable, rest, security, storage
from weir.config.option import ConfigOption


def _options_of(module: ModuleType) -> list[ConfigOption]:
    return [value for value in vars(module).values() if isinstance(value, ConfigOption)]


ALL_OPTIONS: tuple[ConfigOption, ...] = tuple(
    option
    for module in (execution, checkpointing, backend, storage, rest, security, queryable)
    for option in _options_of(module)
)
KNOWN_KEYS: frozenset[str] = frozenset(
    key for option in ALL_OPTIONS for key in (option.key, *option.deprecated_keys)
)
OPTION_BY_KEY: dict[str, ConfigOption] = {
    **{key: option for option in ALL_OPTIONS for key in option.deprecated_keys},
    **{option.key: option for option in ALL_OPTIONS},
}
