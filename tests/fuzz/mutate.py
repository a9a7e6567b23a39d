"""Seeded mutations: of bytes, and of what MessagePack, JSON and texts consist of.

A mutation of structure decodes, changes one or a few places of the tree and encodes again, so that
it comes to the code behind the parser. The same seed makes the same inputs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.fuzz.target import Form

LIMIT = 64 * 1024
NUMBERS = [
    *(-1, 0, 1, 2, 3, 127, 128, 255, 256, 32767, 32768, 65535, 65536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1),
    *(-(2**31), -(2**63), -(2**15), 253_402_300_800_000),
]
TEXTS = [
    *("", "0", "-1", "a", "..", "/", "../../x", "\0", "é", "𝄞", "\x1b[2J", "٣", "null", "NaN"),
    *("1e999", "9" * 5000, "x" * 300, "file:///nowhere", "_native.rocksdb", "PICKLED_BYTE_ARRAY"),
]
TOKENS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"\\", b"\n", b"\r\n", b" ", b"\t", b"\0"),
    *(b"&a", b"*a", b"<<", b"- ", b"? ", b"| ", b"> ", b"%YAML 9.9", b"---", b"...", b"!!", b"#"),
    *(
        b"\xff",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"[" * 2000,
        b"{" * 2000,
        b'{"":' * 900,
    ),
    *(
        b"HTTP/1.1",
        b"HTTP/0.9",
        b"HTTP/9" * 3,
        b"Host: ",
        b"Content-Length: ",
        b"Expect: 100-continue",
    ),
    *(
        b"Transfer-Encoding: chunked",
        b"Connection: keep-alive",
        b"%00",
        b"%2e%2e/",
        b"//",
        b"?",
        b"&",
    ),
]


class Mutator:
    """Makes inputs out of a corpus."""

    def __init__(self, seed: int | str, form: Form) -> None:
        self._random = random.Random(seed)
        self._form = form

    def mutate(self, data: bytes, corpus: Sequence[bytes] = ()) -> bytes:
        """Return a relative of an input; now and then with a part of another one."""
        dice = self._random
        if self._form in _TREES and dice.random() < 0.75:
            changed = self._tree(data, self._form)
            if changed is not None:
                return changed[:LIMIT]
        for _ in range(dice.choice((1, 1, 1, 2, 4, 8))):
            data = self._bytes(data, corpus)
        return data[:LIMIT]

    def pick(self, corpus: Sequence[bytes]) -> bytes:
        """Return one of the inputs."""
        return self._random.choice(corpus)

    def _bytes(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        dice, size = self._random, len(data)
        at = dice.randrange(size + 1)
        end = min(size, at + dice.choice((1, 1, 2, 4, 8, 32, size)))
        way = dice.randrange(9)
        if way == 0 and at < size:
            return data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
        if way == 1:
            return data[:at] + dice.randbytes(end - at) + data[end:]
        if way == 2:
            return data[:at] + data[end:]
        if way == 3:
            return data[:end] + data[at:end] * dice.choice((1, 2, 50)) + data[end:]
        if way == 4:
            return data[:at]
        if way == 5:
            number = dice.choice(NUMBERS) & (2**64 - 1)
            raw = number.to_bytes(8, dice.choice(("little", "big")))
            part = raw[: dice.choice((1, 2, 4, 8))]
            return data[:at] + part + data[at + len(part) :]
        if way == 6 and corpus:
            other = dice.choice(corpus)
            cut = dice.randrange(len(other) + 1)
            return data[:at] + other[cut:]
        return data[:at] + dice.choice(TOKENS) + data[dice.choice((at, end)) :]

    def _tree(self, data: bytes, form: Form) -> bytes | None:
        decode, encode = _TREES[form]
        try:
            tree = decode(data)
            for _ in range(self._random.choice((1, 1, 1, 2, 3))):
                tree = self._changed(tree)
            return encode(tree)
        except (ValueError, TypeError, RecursionError, OverflowError, msgspec.MsgspecError):
            return None

    def _changed(self, tree: Any) -> Any:
        """Return a tree that is another at one place; goes down at every step, or stops there."""
        dice = self._random
        if isinstance(tree, dict) and tree and dice.random() < 0.9:
            return self._changed_dict(dict(tree))
        if isinstance(tree, list) and tree and dice.random() < 0.9:
            return self._changed_list(list(tree))
        if isinstance(tree, bytes) and dice.random() < 0.9:
            inner = self._tree(tree, "msgpack") if dice.random() < 0.6 else None
            return self._bytes(tree, ()) if inner is None else inner
        if isinstance(tree, str) and tree and dice.random() < 0.5:
            return self._bytes(tree.encode(), ()).decode("utf-8", "replace")
        if isinstance(tree, int) and not isinstance(tree, bool) and dice.random() < 0.5:
            return tree + dice.choice((-2, -1, 1, 2, 1 << 16))
        return self._odd()

    def _changed_dict(self, tree: dict[Any, Any]) -> dict[Any, Any]:
        dice = self._random
        key = dice.choice(list(tree))
        way = dice.randrange(10)
        if way == 0:
            del tree[key]
        elif way == 1:
            tree[dice.choice(TEXTS)] = tree[key]
        elif way == 2:
            tree[self._changed(key)] = tree.pop(key)
        elif way == 3:
            tree[key] = tree[dice.choice(list(tree))]
        else:
            tree[key] = self._changed(tree[key])
        return tree

    def _changed_list(self, tree: list[Any]) -> list[Any]:
        dice = self._random
        at = dice.randrange(len(tree))
        way = dice.randrange(10)
        if way == 0:
            del tree[at]
        elif way == 1:
            tree.insert(at, dice.choice(tree))
        elif way == 2:
            tree[at] = dice.choice(tree)
        elif way == 3:
            dice.shuffle(tree)
        elif way == 4:
            tree.insert(at, self._odd())
        else:
            tree[at] = self._changed(tree[at])
        return tree

    def _odd(self) -> Any:
        dice = self._random
        way = dice.randrange(10)
        if way < 3:
            return dice.choice(NUMBERS)
        if way < 6:
            return dice.choice(TEXTS)
        if way == 6:
            return dice.choice((None, True, False))
        if way == 7:
            return dice.choice((0.5, -0.0, 1e308, 5e-324))
        if way == 8:
            return dice.choice(([], {}, [[]], {"": {}}, [None], [0, 0, 0]))
        deep: Any = 0
        for _ in range(dice.choice((3, 60, 400))):
            deep = [deep]
        return deep


def _to_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()


_TREES: dict[Form, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "msgpack": (msgspec.msgpack.decode, msgspec.msgpack.encode),
    "json": (json.loads, _to_json),
}
