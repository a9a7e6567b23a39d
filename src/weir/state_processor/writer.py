"""`SavepointWriter`: new savepoints of records, and changed ones, with Flink's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.connector.builtin_sources import CollectionSource, DataFrameSource
from weir.connector.decoder import Records, TypedColumns
from weir.datastream import DataStream, StreamExecutionEnvironment
from weir.datastream._checks import require_type
from weir.datastream._windowed_streams import Windows
from weir.errors import UsageError
from weir.graph.plan import JobPlan, compile_plan, detach_sources
from weir.jobmanager.settings import JobSettings
from weir.offline.bootstrap import Bootstrap, BootstrapInput, PiecesInMemory, check_bootstrap
from weir.offline.contents import read_snapshot
from weir.offline.editing import SavepointEdit
from weir.spark.state_functions import SparkInput
from weir.state_processor.functions import (
    Broadcasting,
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    OperatorIdentifier,
    StateBootstrapFunction,
)
from weir.storage.options import StorageOptions


class StateBootstrapTransformation:
    """Records and the operator that makes state of them; see `OperatorTransformation`.

    Example:
        class Rules(BroadcastStateBootstrapFunction):
            def process_element(self, value, ctx):
                rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
                ctx.get_broadcast_state(rules).put(*value)

        transformation = OperatorTransformation.bootstrap_with(stream).transform(Rules())
    """

    def __init__(self, stream: DataStream, max_parallelism: int | None) -> None:
        self.stream = stream
        self.max_parallelism = max_parallelism


class OperatorTransformation:
    """The beginning of a bootstrap.

    Example:
        class History(KeyedStateBootstrapFunction):
            def open(self, runtime_context):
                self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

            def process_element(self, value, ctx):
                self.total.update((self.total.value() or 0) + value[1])

        by_name = OperatorTransformation.bootstrap_with(stream).key_by(lambda row: row[0])
        by_name.transform(History())
    """

    @staticmethod
    def bootstrap_with(stream: DataStream) -> OneInputOperatorTransformation:
        """Make state of the records of a stream: of a collection, or of a static DataFrame.

        Functions without state may come before, such as `map` and timestamps.
        """
        return OneInputOperatorTransformation(stream)


class OneInputOperatorTransformation:
    """Records without keys.

    Example:
        OperatorTransformation.bootstrap_with(stream).set_max_parallelism(128)
    """

    def __init__(self, stream: DataStream) -> None:
        self._stream = stream
        self._max_parallelism: int | None = None

    def set_max_parallelism(self, max_parallelism: int) -> OneInputOperatorTransformation:
        """Give the operator a max parallelism of its own."""
        self._max_parallelism = max_parallelism
        return self

    def assign_timestamps_and_watermarks(self, strategy: Any) -> OneInputOperatorTransformation:
        """Give the records timestamps; watermarks have no effect here."""
        self._stream = self._stream.assign_timestamps_and_watermarks(strategy)
        return self

    def transform(
        self, function: StateBootstrapFunction | BroadcastStateBootstrapFunction
    ) -> StateBootstrapTransformation:
        """Make operator state, or broadcast state.

        Raises:
            TypeError: it is no such function.
        """
        stream = self._stream
        if isinstance(function, BroadcastStateBootstrapFunction):
            stream, function = stream.broadcast(), Broadcasting(function)
        require_type(
            function,
            StateBootstrapFunction,
            "a StateBootstrapFunction or BroadcastStateBootstrapFunction; keyed state needs key_by",
        )
        return StateBootstrapTransformation(stream.process(function), self._max_parallelism)

    def key_by(self, key_selector: Any, key_type: Any = None) -> KeyedOperatorTransformation:
        """Partition the records by key."""
        return KeyedOperatorTransformation(
            self._stream, key_selector, key_type, self._max_parallelism
        )


class KeyedOperatorTransformation:
    """Records with keys.

    Example:
        OperatorTransformation.bootstrap_with(stream).key_by(lambda row: row[0], Types.STRING())
    """

    def __init__(
        self, stream: DataStream, selector: Any, key_type: Any, max_parallelism: int | None
    ) -> None:
        self._keyed = stream.key_by(selector, key_type)
        self._max_parallelism = max_parallelism

    def transform(self, function: KeyedStateBootstrapFunction) -> StateBootstrapTransformation:
        """Make keyed state and timers.

        Raises:
            TypeError: it is no such function.
        """
        require_type(function, KeyedStateBootstrapFunction, "a KeyedStateBootstrapFunction")
        return StateBootstrapTransformation(self._keyed.process(function), self._max_parallelism)

    def window(self, assigner: Any) -> WindowedOperatorTransformation:
        """Make the contents of windows."""
        return WindowedOperatorTransformation(self._keyed.window(assigner), self._max_parallelism)


class WindowedOperatorTransformation:
    """Records in windows, which stay open.

    Example:
        records = OperatorTransformation.bootstrap_with(stream).key_by(lambda row: row[0])
        records.window(TumblingEventTimeWindows.of(Time.hours(1))).reduce(lambda a, b: b)
    """

    def __init__(self, windows: Any, max_parallelism: int | None) -> None:
        self._windows: Windows[Any] = windows
        self._max_parallelism = max_parallelism

    def trigger(self, trigger: Any) -> WindowedOperatorTransformation:
        """Use a trigger other than the assigner's; it must be the job's."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Any) -> WindowedOperatorTransformation:
        """Use an evictor; it must be the job's."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, lateness: Any) -> WindowedOperatorTransformation:
        """Keep windows for late records as long as the job does."""
        self._windows.allowed_lateness(lateness)
        return self

    def reduce(self, *args: Any, **named: Any) -> StateBootstrapTransformation:
        """Reduce the records of a window, as `WindowedStream.reduce`."""
        return self._made(self._windows.reduce(*args, **named))  # type: ignore[attr-defined]

    def aggregate(self, *args: Any, **named: Any) -> StateBootstrapTransformation:
        """Aggregate the records of a window, as `WindowedStream.aggregate`."""
        return self._made(self._windows.aggregate(*args, **named))  # type: ignore[attr-defined]

    def apply(self, *args: Any, **named: Any) -> StateBootstrapTransformation:
        """Keep the records of a window, as `WindowedStream.apply`."""
        return self._made(self._windows.apply(*args, **named))  # type: ignore[attr-defined]

    def process(self, *args: Any, **named: Any) -> StateBootstrapTransformation:
        """Keep the records of a window, as `WindowedStream.process`."""
        return self._made(self._windows.process(*args, **named))  # type: ignore[attr-defined]

    def _made(self, stream: DataStream) -> StateBootstrapTransformation:
        return StateBootstrapTransformation(stream, self._max_parallelism)


class SavepointWriter:
    """Collects operators and writes a savepoint; every method returns itself.

    Example:
        class History(KeyedStateBootstrapFunction):
            def open(self, runtime_context):
                self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

            def process_element(self, value, ctx):
                self.total.update(value[1])

        records = OperatorTransformation.bootstrap_with(stream).key_by(lambda row: row[0])
        writer = SavepointWriter.new_savepoint(env, 128)
        writer.with_operator(OperatorIdentifier.for_uid("count"), records.transform(History()))
        writer.write("history")
    """

    def __init__(
        self, env: StreamExecutionEnvironment, edit: SavepointEdit, max_parallelism: int | None
    ) -> None:
        self._env = env
        self._edit = edit
        self._max_parallelism = max_parallelism
        self._settings: dict[str, Any] = {}
        self._added: dict[str, tuple[OperatorIdentifier, StateBootstrapTransformation]] = {}

    @classmethod
    def new_savepoint(
        cls,
        env: StreamExecutionEnvironment,
        max_parallelism: int | None = None,
        checkpoint_id: int = 1,
    ) -> SavepointWriter:
        """Begin a savepoint without any operator; without a max parallelism it is the job's."""
        return cls(env, SavepointEdit.new(checkpoint_id), max_parallelism)

    @classmethod
    def from_existing_savepoint(
        cls,
        env: StreamExecutionEnvironment,
        path: str,
        options: dict[str, str] | None = None,
        *,
        drop_in_flight: bool = False,
    ) -> SavepointWriter:
        """Begin with everything that a savepoint or checkpoint holds, which stays as it is.

        Raises:
            UsageError: there is none, or it holds rows in flight and they are not to be dropped.
        """
        contents = read_snapshot(path, StorageOptions.of(dict(options or {})))
        return cls(env, SavepointEdit.of(contents, drop_in_flight=drop_in_flight), None)

    def with_configuration(self, option: Any, value: Any) -> SavepointWriter:
        """Set something for the operators that are made, such as ``state.backend.type``."""
        self._settings[getattr(option, "key", None) or str(option)] = value
        return self

    def with_operator(
        self, identifier: OperatorIdentifier | str, transformation: StateBootstrapTransformation
    ) -> SavepointWriter:
        """Add an operator, or put one back that was removed, with state of its own.

        Raises:
            UsageError: it is there.
        """
        named = OperatorIdentifier.of(identifier)
        if self._is_there(named):
            msg = f"operator {named.name!r} is there already: remove it first"
            raise UsageError(msg)
        self._added[named.uid_hash] = (named, transformation)
        return self

    def remove_operator(self, identifier: OperatorIdentifier | str) -> SavepointWriter:
        """Leave an operator out; raises UsageError when there is none."""
        named = OperatorIdentifier.of(identifier)
        if self._added.pop(named.uid_hash, None) is None:
            self._edit.remove_operator(named.name)
        return self

    def change_operator_identifier(
        self, before: OperatorIdentifier | str, after: OperatorIdentifier | str
    ) -> SavepointWriter:
        """Give an operator another uid.

        Raises:
            UsageError: there is no such operator, another one has that uid, or it is a hash.
        """
        named = OperatorIdentifier.of(after)
        if named.uid is None:
            msg = "an operator gets another uid, not a hash: use OperatorIdentifier.for_uid()"
            raise UsageError(msg)
        which = OperatorIdentifier.of(before)
        if self._is_there(named):
            msg = f"another operator has the uid {named.uid!r}"
            raise UsageError(msg)
        added = self._added.pop(which.uid_hash, None)
        if added is None:
            self._edit.change_operator_identifier(which.name, named.uid)
        else:
            self._added[named.uid_hash] = (named, added[1])
        return self

    def filter_transactions(
        self, identifier: OperatorIdentifier | str, keep: Callable[[int, str], bool]
    ) -> SavepointWriter:
        """Keep only some of the transactions that a sink had prepared; others never commit.

        `keep` is asked with the checkpoint that prepared a transaction, and with the transaction.

        Raises:
            UsageError: there is no such operator, or it is no sink that prepares transactions.
        """
        self._edit.filter_transactions(OperatorIdentifier.of(identifier).name, keep)
        return self

    def write(self, path: str, options: dict[str, str] | None = None) -> str:
        """Make the state of new operators and write everything; returns where it is.

        Raises:
            UsageError: something is at that place, or a bootstrap cannot be run.
            JobExecutionError: a function raised; nothing is written.
            StorageError: a file cannot be read or written.
        """
        made = [self._bootstrap(*added) for added in self._added.values()]
        for bootstrap, given in made:
            self._edit.with_bootstrap(bootstrap, given)
        self._added = {}
        return self._edit.write(path, StorageOptions.of(dict(options or {})))

    def _is_there(self, named: OperatorIdentifier) -> bool:
        if named.uid_hash in self._added:
            return True
        try:
            self._edit.operator(named.uid_hash)
        except UsageError:
            return False
        return True

    def _bootstrap(
        self, identifier: OperatorIdentifier, given: StateBootstrapTransformation
    ) -> tuple[Bootstrap, BootstrapInput]:
        last = given.stream.edges[0].source
        last.uid, last.uid_hash = identifier.uid, None if identifier.uid else identifier.uid_hash
        graph = self._env.detach(last)
        most = given.max_parallelism or last.max_parallelism or self._max_parallelism
        graph.max_parallelism = most or graph.max_parallelism
        layers = [self._env.effective_configuration().to_dict(), self._settings]
        settings = JobSettings.of(layers)
        plan = compile_plan(graph, settings.parallelism or 1)
        check_bootstrap(plan)
        sources = detach_sources(plan)
        bootstrap = Bootstrap(plan, self._edit.checkpoint_id, settings.backend)
        return bootstrap, _input(plan, sources)


def _input(plan: JobPlan, sources: dict[int, Any]) -> BootstrapInput:
    """Return who reads the sources of a bootstrap.

    Raises:
        UsageError: one is neither a collection nor a static DataFrame.
    """
    collections = {i: s for i, s in sources.items() if isinstance(s, CollectionSource)}
    if len(collections) == len(sources):
        return PiecesInMemory(
            tuple((index, Records(list(found.elements))) for index, found in collections.items())
        )
    frames = []
    for index, source in sources.items():
        if not isinstance(source, DataFrameSource) or not source.bounded:
            name = plan.operators[index].name
            msg = (
                f"source '{name}' cannot be bootstrapped from: use from_dataframe() with a static "
                "DataFrame, or from_collection()"
            )
            raise UsageError(msg)
        decoder = TypedColumns(plan.operators[index].output_type)
        frames.append((index, source.dataframe, decoder))
    return SparkInput(tuple(frames))
