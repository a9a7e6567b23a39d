"""Parameters have the names that they have in PyFlink, so calls by keyword work."""

from __future__ import annotations

from weir.common import (
    Configuration,
    ExecutionConfig,
    InputDependencyConstraint,
    RestartStrategies,
    Time,
    Types,
)
from weir.datastream import StreamExecutionEnvironment
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor, OperatorStateStore


def test_a_configuration_is_made_from_a_map() -> None:
    assert Configuration.from_dict(map={"a": "b"}).to_dict() == {"a": "b"}


def test_settings_of_the_execution_are_given_by_name() -> None:
    config = ExecutionConfig()
    config.set_global_job_parameters(global_job_parameters_dict={"a": 1})
    assert config.get_global_job_parameters() == {"a": "1"}
    strategy = RestartStrategies.no_restart()
    config.set_restart_strategy(restart_strategy_configuration=strategy)
    assert config.get_restart_strategy() == strategy
    wanted = InputDependencyConstraint.ALL
    config.set_default_input_dependency_constraint(input_dependency_constraint=wanted)
    assert config.get_default_input_dependency_constraint() is wanted


def test_the_type_of_the_elements_of_a_list_is_given_by_name() -> None:
    assert Types.LIST(element_type_info=Types.LONG()) == Types.LIST(Types.LONG())


def test_a_length_of_time_is_given_by_name() -> None:
    assert Time(milliseconds=5) == Time.milliseconds(5)


def test_operator_states_are_asked_for_by_name() -> None:
    store = OperatorStateStore()
    rules = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
    store.get_broadcast_state(state_descriptor=rules).put(1, 2)
    assert store.get_read_only_broadcast_state(state_descriptor=rules).get(1) == 2
    split, union = (ListStateDescriptor(name, Types.LONG()) for name in ("split", "union"))
    store.get_list_state(state_descriptor=split).add(1)
    store.get_union_list_state(state_descriptor=union).add(1)
    assert store.get_registered_state_names() == {"split", "union"}


def test_the_type_of_the_key_of_two_streams_is_given_by_its_older_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1], Types.LONG())
    keyed = numbers.connect(numbers).key_by(lambda v: v, lambda v: v, key_type_info=Types.LONG())
    assert [edge.key.key_type for edge in keyed.stream1.edges] == [Types.LONG()]
