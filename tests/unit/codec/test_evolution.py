"""Every type has a codec, sound changes keep every value, all others are refused by name."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.codec.strategies import DECLARED_TYPES, exact, values_of

from weir.codec import codec_for
from weir.codec.evolution import Compatibility, migration, require_same_key
from weir.codec.stamped import StampedTypeInfo
from weir.common.time import Instant
from weir.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from weir.common.types import Row
from weir.errors import CorruptStateError, IncompatibleStateError

FAST = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))

BYTE, SHORT, INT, LONG = Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()
FLOAT, DOUBLE, STRING = Types.FLOAT(), Types.DOUBLE(), Types.STRING()
PICKLED = Types.PICKLED_BYTE_ARRAY()
ZONED = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999, datetime.timezone.utc)

# By name in Types: arguments of the call, and values at the edges of the type.
MEMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "STRING": ([], ["", "ä\0𝄞"]),
    "BYTE": ([], [-128, 127]),
    "BOOLEAN": ([], [True, False]),
    "SHORT": ([], [-32768, 32767]),
    "INT": ([], [-(1 << 31), (1 << 31) - 1]),
    "LONG": ([], [-(1 << 63), (1 << 63) - 1]),
    "FLOAT": ([], [0.5, -3.4028234663852886e38, float("inf")]),
    "DOUBLE": ([], [0.1, -1.7976931348623157e308, float("-inf")]),
    "CHAR": ([], ["a", "𝄞"]),
    "BIG_INT": ([], [0, 1 << 200, -(1 << 200)]),
    "BIG_DEC": ([], [Decimal("0.10"), Decimal("-1E+400")]),
    "INSTANT": ([], [Instant(-1, 999_999_999)]),
    "SQL_DATE": ([], [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "SQL_TIME": ([], [datetime.time(23, 59, 59, 999_999)]),
    "SQL_TIMESTAMP": ([], [ZONED.replace(tzinfo=None)]),
    "TIMESTAMP_LTZ": ([], [ZONED]),
    "PICKLED_BYTE_ARRAY": ([], [{1, 2}, (1, [2])]),
    "ROW": ([[LONG, STRING]], [Row(f0=1, f1="a"), Row(f0=None, f1=None)]),
    "ROW_NAMED": ([["n", "s"], [LONG, STRING]], [Row(n=1, s="a")]),
    "TUPLE": ([[LONG, STRING]], [(1, "a")]),
    "PRIMITIVE_ARRAY": ([BYTE], [b"\x00\xff", b""]),
    "BASIC_ARRAY": ([STRING], [["a", None], []]),
    "OBJECT_ARRAY": ([Types.TUPLE([LONG])], [[(1,), None]]),
    "MAP": ([STRING, LONG], [{"a": 1, "b": None}, {}]),
    "LIST": ([LONG], [[1, None], []]),
}


def member(name: str) -> TypeInformation:
    made: TypeInformation = getattr(Types, name)(*MEMBERS[name][0])
    return made


def test_the_table_has_every_member_of_types() -> None:
    assert set(MEMBERS) == {name for name in vars(Types) if not name.startswith("_")}


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_of_types_has_a_codec_and_a_description(name: str) -> None:
    type_info, values = member(name), [*MEMBERS[name][1], None]
    codec = codec_for(type_info)
    assert exact(codec.decode_many(codec.encode_many(values))) == exact(values)
    assert [exact(codec.decode(codec.encode(v))) for v in values] == [exact(v) for v in values]
    assert migration(codec.describe(), type_info).kind is Compatibility.AS_IS


@pytest.mark.parametrize("kind", ["SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR", "BOOLEAN"])
def test_every_primitive_has_an_array(kind: str) -> None:
    codec = codec_for(Types.PRIMITIVE_ARRAY(getattr(Types, kind)()))
    values = MEMBERS[kind][1]
    assert exact(codec.decode(codec.encode(values))) == exact(values)


def migrated(old: TypeInformation, new: TypeInformation | None, values: list[Any]) -> list[Any]:
    """Store values by one type and read them by another, one by one and in bulk."""
    codec = codec_for(old)
    change = migration(codec.describe(), new)
    assert change.kind is Compatibility.AFTER_MIGRATION
    assert change.describe() == codec_for(new).describe()
    many = change.decode_many(codec.encode_many(values))
    assert exact([change.decode(codec.encode(v)) for v in values]) == exact(many)
    return many


def named(**fields: TypeInformation) -> TypeInformation:
    return Types.ROW_NAMED(list(fields), list(fields.values()))


WIDER = [
    *[(a, b) for i, a in enumerate([BYTE, SHORT, INT, LONG]) for b in [SHORT, INT, LONG][i:]],
    *[(a, Types.BIG_INT()) for a in (BYTE, SHORT, INT, LONG)],
]


@pytest.mark.parametrize(("old", "new"), WIDER, ids=repr)
def test_integers_widen_and_keep_their_values(old: TypeInformation, new: TypeInformation) -> None:
    values = [*MEMBERS[old.kind][1], None]
    assert exact(migrated(old, new, values)) == exact(values)
    with pytest.raises(IncompatibleStateError, match="cannot become"):
        migration(new.to_json(), old)


@pytest.mark.parametrize(
    ("old", "new"), [(BYTE, FLOAT), (SHORT, FLOAT), (BYTE, DOUBLE), (SHORT, DOUBLE), (INT, DOUBLE)]
)
def test_integers_become_floats_where_all_of_them_are_exact(old: Any, new: Any) -> None:
    values = MEMBERS[old.kind][1]
    assert exact(migrated(old, new, values)) == exact([float(v) for v in values])
    assert [int(v) for v in migrated(old, new, values)] == values


def test_floats_widen() -> None:
    values = [*MEMBERS["FLOAT"][1], None]
    assert exact(migrated(FLOAT, DOUBLE, values)) == exact(values)


REFUSED = [
    (INT, FLOAT),
    (LONG, DOUBLE),
    (LONG, FLOAT),
    (Types.BIG_INT(), DOUBLE),
    (DOUBLE, FLOAT),
    (DOUBLE, LONG),
    (LONG, STRING),
    (STRING, LONG),
    (Types.BOOLEAN(), INT),
    (LONG, Types.BOOLEAN()),
    (Types.SQL_TIMESTAMP(), Types.TIMESTAMP_LTZ()),
    (Types.SQL_TIMESTAMP(), Types.SQL_DATE()),
    (Types.TUPLE([LONG]), Types.ROW([LONG])),
    (named(a=LONG), Types.TUPLE([LONG])),
    (Types.TUPLE([LONG]), Types.TUPLE([LONG, LONG])),
    (Types.TUPLE([LONG, LONG]), Types.TUPLE([LONG])),
    (Types.TUPLE([LONG]), LONG),
    (Types.ROW([LONG]), Types.ROW([LONG, LONG])),
    (Types.ROW([LONG, LONG]), named(f0=LONG)),
    (named(a=LONG, b=LONG), Types.ROW([LONG])),
    (named(a=LONG), named(a=INT, b=STRING)),
    (Types.LIST(LONG), Types.LIST(INT)),
    (Types.LIST(LONG), Types.BASIC_ARRAY(LONG)),
    (Types.LIST(LONG), LONG),
    (Types.PRIMITIVE_ARRAY(BYTE), Types.PRIMITIVE_ARRAY(SHORT)),
    (Types.PRIMITIVE_ARRAY(BYTE), Types.LIST(BYTE)),
    (Types.MAP(STRING, LONG), Types.MAP(STRING, INT)),
    (Types.MAP(INT, LONG), Types.MAP(LONG, LONG)),
    (Types.MAP(STRING, LONG), named(a=LONG)),
    (Types.LIST(Types.MAP(INT, LONG)), Types.LIST(Types.MAP(PICKLED, LONG))),
]


@pytest.mark.parametrize(("old", "new"), REFUSED, ids=repr)
def test_a_change_that_is_not_sound_is_refused_with_both_types(old: Any, new: Any) -> None:
    with pytest.raises(IncompatibleStateError) as caught:
        migration(old.to_json(), new, subject="state 'totals'")
    text = str(caught.value)
    assert text.startswith(f"state 'totals' was stored as {old!r} and is declared as {new!r}: ")
    assert "declare it as it was stored, or give the new state another name" in text


def test_a_refusal_names_the_place_inside_the_type() -> None:
    old = named(a=LONG, inner=Types.LIST(named(x=Types.MAP(STRING, Types.TUPLE([INT, LONG])))))
    new = named(a=LONG, inner=Types.LIST(named(x=Types.MAP(STRING, Types.TUPLE([INT, INT])))))
    with pytest.raises(IncompatibleStateError, match=r"in inner\.elements\.x\.values\.f1, Types"):
        migration(old.to_json(), new)


def test_fields_are_added_removed_and_reordered_by_name() -> None:
    old = named(id=INT, name=STRING, gone=DOUBLE)
    new = named(added=LONG, name=STRING, id=LONG)
    rows = [Row(id=1, name="foo", gone=0.5), None, Row(id=None, name="bar", gone=None)]
    expected = [Row(added=None, name="foo", id=1), None, Row(added=None, name="bar", id=None)]
    found = migrated(old, new, rows)
    assert found == expected
    assert [None if row is None else list(row) for row in found] == [
        [None, "foo", 1],
        None,
        [None, "bar", None],
    ]


def test_rows_without_names_go_by_position() -> None:
    assert migrated(Types.ROW([INT, STRING]), Types.ROW([DOUBLE, STRING]), [Row(1, "a")]) == [
        Row(f0=1.0, f1="a")
    ]
    assert migrated(Types.ROW([INT]), named(a=LONG), [Row(1)]) == [Row(a=1)]
    assert migrated(named(a=INT), Types.ROW([LONG]), [Row(a=1)]) == [Row(f0=1)]


@pytest.mark.parametrize(
    ("wrap", "put"),
    [
        (lambda t: named(k=STRING, v=t), lambda v: Row(k="x", v=v)),
        (lambda t: Types.TUPLE([STRING, t]), lambda v: ("x", v)),
        (Types.LIST, lambda v: [v, None, v]),
        (Types.OBJECT_ARRAY, lambda v: [v]),
        (Types.BASIC_ARRAY, lambda v: [None, v]),
        (lambda t: Types.MAP(STRING, t), lambda v: {"x": v, "y": None}),
        (lambda t: Types.LIST(Types.MAP(STRING, Types.TUPLE([t]))), lambda v: [{"x": (v,)}]),
    ],
)
def test_sound_changes_are_found_inside_other_types(wrap: Any, put: Any) -> None:
    assert exact(migrated(wrap(INT), wrap(DOUBLE), [put(7), None])) == exact([put(7.0), None])
    assert exact(migrated(wrap(BYTE), wrap(LONG), [put(7)])) == exact([put(7)])
    assert migrated(wrap(named(a=INT)), wrap(named(b=INT, a=LONG)), [put(Row(a=1))]) == [
        put(Row(b=None, a=1))
    ]
    with pytest.raises(IncompatibleStateError):
        migration(wrap(LONG).to_json(), wrap(INT))


def test_every_type_can_lose_its_declaration() -> None:
    for name, (_, values) in MEMBERS.items():
        if name != "PICKLED_BYTE_ARRAY":
            assert exact(migrated(member(name), None, values)) == exact(values)
            row = migrated(named(a=member(name)), named(a=PICKLED), [Row(a=v) for v in values])
            assert [exact(r.a) for r in row] == [exact(v) for v in values]


def test_undeclared_values_get_a_type_when_they_fit() -> None:
    assert exact(migrated(PICKLED, DOUBLE, [1, 2.5, None])) == exact([1.0, 2.5, None])
    assert migrated(PICKLED, named(a=LONG), [Row(a=1), {"a": 2}]) == [Row(a=1), Row(a=2)]
    assert migrated(Types.LIST(PICKLED), Types.LIST(LONG), [[1, None]]) == [[1, None]]


def test_an_undeclared_value_that_does_not_fit_is_refused_with_its_class() -> None:
    stored = codec_for(None)
    change = migration(stored.describe(), Types.LIST(LONG), subject="state 'seen'")
    assert change.kind is Compatibility.AFTER_MIGRATION
    assert change.decode(stored.encode([1, 2])) == [1, 2]
    data = stored.encode_many([[1], Decimal(1)])
    with pytest.raises(IncompatibleStateError, match=r"'seen'.*decimal\.Decimal.*Types\.LIST"):
        change.decode_many(data)
    with pytest.raises(IncompatibleStateError, match=r"decimal\.Decimal"):
        change.decode(stored.encode(Decimal(1)))


def test_damaged_bytes_and_descriptions_stay_corrupt() -> None:
    change = migration(INT.to_json(), DOUBLE)
    for data in (b"", b"\xc1", codec_for(STRING).encode("x"), codec_for(LONG).encode(1 << 40)):
        with pytest.raises(CorruptStateError):
            change.decode(data)
        with pytest.raises(CorruptStateError):
            change.decode_many(data)
    for description in ({}, {"type": "NOVEL"}, {"type": "LIST"}, {"type": "ROW", "fields": [1]}):
        with pytest.raises(CorruptStateError):
            migration(description, LONG)


def test_a_migration_writes_the_declared_type_only() -> None:
    change = migration(INT.to_json(), DOUBLE)
    assert change.type_info == DOUBLE
    assert change.safe
    assert change.encode(1) == codec_for(DOUBLE).encode(1.0)
    assert change.encode_many([1]) == codec_for(DOUBLE).encode_many([1.0])
    assert not migration(PICKLED.to_json(), LONG).safe
    assert migration(LONG.to_json(), PICKLED).safe


@pytest.mark.parametrize(
    ("old", "new"), [(INT, LONG), (LONG, PICKLED), (PICKLED, LONG), (STRING, LONG)], ids=repr
)
def test_keys_never_change_not_even_to_a_wider_type(old: Any, new: Any) -> None:
    require_same_key("key", old.to_json(), codec_for(old), "state 's'")
    with pytest.raises(IncompatibleStateError, match="key types cannot change") as caught:
        require_same_key("key", old.to_json(), codec_for(new), "state 's'")
    assert repr(old) in str(caught.value)
    assert repr(new) in str(caught.value)
    assert "state 's'" in str(caught.value)


def timed(old: Any, new: Any, values: list[Any], now_ms: int = 77) -> list[Any]:
    codec = codec_for(old)
    change = migration(codec.describe(), new, now_ms)
    assert change.kind is Compatibility.AFTER_MIGRATION
    many = change.decode_many(codec.encode_many(values))
    assert exact([change.decode(codec.encode(v)) for v in values]) == exact(many)
    assert exact(many) == exact([codec_for(new).type_info.check(v) for v in many])
    return many


def test_time_to_live_is_switched_on_with_the_time_of_the_change() -> None:
    assert timed(LONG, StampedTypeInfo(LONG), [1, None]) == [(1, 77), (None, 77)]
    assert timed(INT, StampedTypeInfo(DOUBLE), [1, None]) == [(1.0, 77), (None, 77)]
    assert timed(PICKLED, StampedTypeInfo(None), [{1}]) == [({1}, 77)]
    assert timed(PICKLED, StampedTypeInfo(LONG), [(1 << 62), None]) == [(1 << 62, 77), (None, 77)]
    assert timed(LONG, StampedTypeInfo(None), [1]) == [(1, 77)]


def test_time_to_live_is_switched_off_and_values_stay() -> None:
    pairs = [(1, 5), (None, -6)]
    assert timed(StampedTypeInfo(LONG), LONG, pairs) == [1, None]
    assert exact(timed(StampedTypeInfo(INT), DOUBLE, pairs)) == exact([1.0, None])
    assert timed(StampedTypeInfo(LONG), None, pairs) == [1, None]
    assert timed(StampedTypeInfo(None), LONG, pairs) == [1, None]


def test_values_that_expire_migrate_and_keep_their_timestamps() -> None:
    old, new = StampedTypeInfo(named(a=INT)), StampedTypeInfo(named(b=STRING, a=LONG))
    assert timed(old, new, [(Row(a=1), 5), (None, 6)]) == [(Row(b=None, a=1), 5), (None, 6)]
    assert timed(StampedTypeInfo(INT), StampedTypeInfo(LONG), [(1, 5)]) == [(1, 5)]
    same = StampedTypeInfo(LONG)
    assert migration(same.to_json(), same).kind is Compatibility.AS_IS


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (StampedTypeInfo(LONG), INT),
        (LONG, StampedTypeInfo(INT)),
        (StampedTypeInfo(LONG), StampedTypeInfo(STRING)),
        (StampedTypeInfo(LONG), Types.TUPLE([LONG, LONG])),
        (Types.TUPLE([LONG, LONG]), StampedTypeInfo(LONG)),
    ],
    ids=repr,
)
def test_time_to_live_allows_no_other_change_than_without_it(old: Any, new: Any) -> None:
    with pytest.raises(IncompatibleStateError, match="cannot become") as caught:
        migration(old.to_json(), new)
    assert f"stored as {old!r} and is declared as {new!r}" in str(caught.value)


@st.composite
def evolved(draw: st.DrawFn, old: TypeInformation) -> TypeInformation:
    """Draw a type that somebody could have made out of the old one, soundly or not."""
    steps = {"BYTE": ["SHORT", "FLOAT"], "SHORT": ["INT", "FLOAT"], "INT": ["LONG", "DOUBLE"]}
    steps |= {"LONG": ["BIG_INT", "INT"], "FLOAT": ["DOUBLE"], "STRING": ["PICKLED_BYTE_ARRAY"]}
    if isinstance(old, RowTypeInfo) and old.field_names is not None:
        pairs = list(zip(old.field_names, old.get_field_types(), strict=True))
        kept = draw(st.permutations(pairs))[: draw(st.integers(0, len(pairs)))]
        fields = {name: draw(evolved(t)) for name, t in kept}
        if draw(st.booleans()):
            fields["added"] = draw(DECLARED_TYPES)
        return named(**fields)
    if isinstance(old, (RowTypeInfo, TupleTypeInfo)):
        make = Types.ROW if isinstance(old, RowTypeInfo) else Types.TUPLE
        return make([draw(evolved(t)) for t in old.get_field_types()])
    if isinstance(old, MapTypeInfo):
        return Types.MAP(old.key_type, draw(evolved(old.value_type)))
    if hasattr(old, "elem_type") and old.kind != "PRIMITIVE_ARRAY":
        made: TypeInformation = type(old)(draw(evolved(old.elem_type)))
        return made
    return getattr(Types, draw(st.sampled_from(steps[old.kind])))() if old.kind in steps else old


@FAST
@given(st.data())
def test_whatever_migrates_is_exactly_what_the_declared_type_holds(data: Any) -> None:
    old = data.draw(DECLARED_TYPES)
    new = data.draw(evolved(old))
    values = data.draw(st.lists(values_of(old), max_size=4))
    try:
        change = migration(old.to_json(), new)
    except IncompatibleStateError:
        return
    found = change.decode_many(codec_for(old).encode_many(values))
    assert exact(found) == exact([new.check(value) for value in found])
    assert [v is None for v in found] == [v is None for v in values]
    again = codec_for(new)
    assert exact(again.decode_many(again.encode_many(found))) == exact(found)
    if change.kind is Compatibility.AS_IS:
        assert exact(found) == exact(values)


@FAST
@given(DECLARED_TYPES, DECLARED_TYPES)
def test_two_types_migrate_or_are_refused_and_nothing_else(
    old: TypeInformation, new: TypeInformation
) -> None:
    refusal = ""
    try:
        kind: Any = migration(old.to_json(), new).kind
    except IncompatibleStateError as error:
        kind, refusal = None, str(error)
    assert (kind is Compatibility.AS_IS) is (old == new)
    assert (kind is not None) or (repr(old) in refusal and repr(new) in refusal)
