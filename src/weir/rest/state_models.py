"""Bodies and answers of queries about state."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
TextsAsked = Annotated[list[str], msgspec.Meta(max_length=10_000)]
KeysAsked = Annotated[list[Any], msgspec.Meta(max_length=10_000)]


class StateLookupRequest(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Some keys of a state, or those with a prefix or in a range; without any of it all keys.

    `key-texts` are keys as people type them. A window is asked for as `namespace`, its start and
    end.
    """

    keys: KeysAsked | None = None
    key_texts: TextsAsked | None = None
    namespace: Any = None
    prefix: str | None = None
    low: Any = None
    high: Any = None
    level: Literal["live", "committed"] = "live"
    max_age_ms: Count | None = None
    limit: Count | None = None


class StateInfo(msgspec.Struct, rename="kebab"):
    """A state that can be queried; with `opaque` its values are pickles."""

    name: str
    operator: str
    state: str
    kind: str
    types: dict[str, str]
    columns: list[str]
    expires: bool
    opaque: bool


class StateInfos(msgspec.Struct):
    """All states of a job that can be queried."""

    states: list[StateInfo]


class StateRows(msgspec.Struct, rename="kebab"):
    """Rows, and how true they are: as of which epoch, and how old.

    With `truncated` there are more than the limit has let through.
    """

    level: Literal["live", "committed"]
    attempt: int
    checkpoint_id: int | None
    epoch: int | None
    age_ms: int
    columns: list[str]
    rows: list[dict[str, Any]]
    truncated: bool
