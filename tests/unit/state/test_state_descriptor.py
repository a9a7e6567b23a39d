"""Descriptors declare names, kinds, types and functions, and refuse what cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from weir.backend.kinds import StateKind
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.state.ttl import StateTtlConfig
from weir.testing.backend_snapshot_conformance import Sum


class Adder:
    def reduce(self, a: int, b: int) -> int:
        return a + b


def test_descriptors_show_name_kind_and_type() -> None:
    value = ValueStateDescriptor("v", Types.LONG())
    assert (value.get_name(), value.kind, value.type_info) == ("v", StateKind.VALUE, Types.LONG())
    assert ValueStateDescriptor("v").type_info is None
    elements = ListStateDescriptor("l", Types.LONG())
    assert (elements.kind, elements.type_info) == (StateKind.LIST, Types.LIST(Types.LONG()))
    entries = MapStateDescriptor("m", Types.STRING(), Types.LONG())
    assert entries.type_info == Types.MAP(Types.STRING(), Types.LONG())
    assert repr(value) == f"ValueStateDescriptor('v', {Types.LONG()!r})"


def test_a_reduce_function_is_a_callable_or_has_a_reduce_method() -> None:
    adder = Adder()
    assert ReducingStateDescriptor("r", adder, Types.LONG()).function(1, 2) == 3
    assert ReducingStateDescriptor("r", adder, Types.LONG()).get_reduce_function() is adder
    assert ReducingStateDescriptor("r", max, Types.LONG()).function(1, 2) == 2
    with pytest.raises(UsageError, match="ReduceFunction"):
        ReducingStateDescriptor("r", 5, Types.LONG())


def test_an_aggregate_function_has_its_four_methods() -> None:
    function = Sum()
    descriptor = AggregatingStateDescriptor("a", function, Types.LONG())
    assert descriptor.get_agg_function() is function
    with pytest.raises(UsageError, match="create_accumulator"):
        AggregatingStateDescriptor("a", max, Types.LONG())


@pytest.mark.parametrize("name", ["", None, 5, "_timer.event"])
def test_a_name_is_a_string_that_is_not_reserved(name: Any) -> None:
    with pytest.raises(UsageError, match="state name"):
        ValueStateDescriptor(name, Types.LONG())


def test_settings_are_kept() -> None:
    descriptor = ValueStateDescriptor("v", Types.LONG())
    ttl = StateTtlConfig.new_builder(100).build()
    descriptor.enable_time_to_live(ttl)
    descriptor.set_queryable("public")
    assert (descriptor.ttl_config, descriptor.queryable_name) == (ttl, "public")


def test_a_name_for_queries_is_set_once() -> None:
    descriptor = ValueStateDescriptor("v", Types.LONG())
    assert (descriptor.is_queryable(), descriptor.get_queryable_state_name()) == (False, None)
    descriptor.set_queryable("public")
    assert (descriptor.is_queryable(), descriptor.get_queryable_state_name()) == (True, "public")
    with pytest.raises(UsageError, match="Queryable state name already set"):
        descriptor.set_queryable("other")


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_for_queries_is_a_text(name: Any) -> None:
    with pytest.raises(UsageError, match="the name for queries of state 'v'"):
        ValueStateDescriptor("v", Types.LONG()).set_queryable(name)


def test_a_time_to_live_is_a_finished_configuration() -> None:
    descriptor = ValueStateDescriptor("the state", Types.LONG())
    with pytest.raises(UsageError, match=r"the state.*expects a StateTtlConfig, found 100"):
        descriptor.enable_time_to_live(100)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="call build"):
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(100))  # type: ignore[arg-type]
    assert descriptor.ttl_config is None
