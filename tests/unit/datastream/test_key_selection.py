"""Which keys are found to be plain fields, and that looking for them changes nothing."""

from __future__ import annotations

import pickle

import pytest

from weir.common import Row, Types
from weir.datastream import KeySelector, NullByteKeySelector
from weir.datastream._key_selection import FieldSelector, key_spec, symbolic_fields
from weir.errors import UsageError

ROW = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])

calls = []


def note(value):
    calls.append(value)
    return value


def named(record):
    return record["word"]


def documented(record):
    """Return the key."""
    return record[0], record[1]


@pytest.mark.parametrize(
    ("selector", "fields"),
    [
        (lambda r: r[0], (0,)),
        (lambda r: r[300], (300,)),
        (lambda r: r["word"], ("word",)),
        (lambda r: r.word, ("word",)),
        (lambda r: (r[0], r[1]), (0, 1)),
        (lambda r: (r["word"], r.number), ("word", "number")),
        (named, ("word",)),
        (documented, (0, 1)),
    ],
)
def test_plain_field_access_is_found(selector, fields):
    assert symbolic_fields(selector) == fields


seven = 7


def closing_over():
    index = 0
    return lambda r: r[index]


@pytest.mark.parametrize(
    "selector",
    [
        lambda r: r,
        lambda r: 1,
        lambda r: None,
        lambda r: (),
        lambda r: (r[0],),
        lambda r: (r[0], 1),
        lambda r: [r[0], r[1]],
        lambda r: r[0][1],
        lambda r: r.word.length,
        lambda r: r[0] + 1,
        lambda r: r[0] % 10,
        lambda r: -r[0],
        lambda r: r[-1],
        lambda r: r[True],
        lambda r: r[None],
        lambda r: r[1.5],
        lambda r: r[0:1],
        lambda r: r[seven],
        lambda r: r[0].lower(),
        lambda r: r.as_dict,
        lambda r: r.__class__,
        lambda r: r[0] == 1,
        lambda r: r[0] if r[1] else r[2],
        lambda r: r[0] or r[1],
        lambda r: f"{r[0]}",
        lambda r: "%s" % r[0],  # noqa: UP031 - the old spelling is the point
        lambda r: note(r[0]),
        lambda r, s=0: r[0],
        lambda *r: r[0],
        lambda **r: r["word"],
        lambda: 1,
        closing_over(),
        str,
        len,
        Row.get_row_kind,
    ],
)
def test_anything_else_is_an_ordinary_function(selector):
    assert symbolic_fields(selector) is None
    assert calls == []


def test_a_function_with_effects_is_never_called():
    def raising(record):
        raise ValueError(record)

    def changing(record):
        record[0] = 1
        return record[0]

    def deleting(record):
        del record[0]
        return record[1]

    def generating(record):
        yield record[0]

    for function in (raising, changing, deleting, generating):
        assert symbolic_fields(function) is None


def test_the_selector_stays_the_users_function():
    def selector(record):
        return record[0]

    spec = key_spec(selector, None, PAIR)
    assert spec.selector is selector
    assert spec.fields == (0,)


def test_a_character_of_a_text_is_no_field():
    assert key_spec(lambda r: r[0], None, Types.STRING()).fields is None
    assert key_spec(lambda r: r[0], None, Types.LIST(Types.INT())).fields is None
    assert key_spec(lambda r: r["a"], None, Types.MAP(Types.STRING(), Types.INT())).fields is None


def test_a_field_that_the_type_lacks_is_left_to_the_function():
    assert key_spec(lambda r: r["other"], None, ROW).fields is None
    assert key_spec(lambda r: r.word, None, PAIR).fields is None
    assert key_spec(lambda r: r[2], None, PAIR).fields is None


def test_key_selectors_give_their_method():
    class First(KeySelector):
        def get_key(self, value):
            return value[0]

    selector = First()
    spec = key_spec(selector, Types.STRING(), PAIR)
    assert spec.selector("ab") == "a"
    assert spec.selector.__self__ is selector
    assert spec.key_type == Types.STRING()
    assert key_spec(NullByteKeySelector(), None, None).selector("x") == 0


@pytest.mark.parametrize(
    ("given", "fields", "key"),
    [
        ("word", ("word",), "a"),
        (["word"], ("word",), "a"),
        (("word", "count"), ("word", "count"), ("a", 1)),
        (1, (1,), 1),
        ([0, "count"], (0, "count"), ("a", 1)),
    ],
)
def test_columns_can_be_named(given, fields, key):
    spec = key_spec(given, None, ROW)
    assert spec.fields == fields
    assert spec.selector(Row(word="a", count=1)) == key
    assert pickle.loads(pickle.dumps(spec.selector))(Row(word="a", count=1)) == key


def test_named_columns_must_exist():
    with pytest.raises(UsageError, match="'missing'"):
        key_spec("missing", None, ROW)
    with pytest.raises(UsageError, match="needs records with fields"):
        key_spec(0, None, Types.STRING())
    with pytest.raises(UsageError, match="no field"):
        key_spec([], None, ROW)
    with pytest.raises(UsageError, match="start at 0"):
        key_spec(-1, None, ROW)


@pytest.mark.parametrize("given", [None, 1.5, True, [1.5], [True]])
def test_what_cannot_be_a_key_is_refused(given):
    with pytest.raises(TypeError):
        key_spec(given, None, ROW)


def test_a_class_instead_of_a_selector_is_refused():
    with pytest.raises(TypeError, match="add parentheses"):
        key_spec(NullByteKeySelector, None, None)


def test_a_field_selector_shows_its_fields():
    assert repr(FieldSelector(("a", 1))) == "FieldSelector(('a', 1))"
