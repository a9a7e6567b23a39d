"""Real ends of the attacked job: a Kafka broker and a PostgreSQL of this run, and what is in them.

Input is appended by a plain idempotent producer. Output is counted by a consumer that reads what is
committed, and by SQL; nothing here shares code with Weir.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.brokers import Broker, Postgres, Server
from tests.chaos.faults import Kind
from tests.chaos.recount import KEYS, ROWS, Verdict
from tests.kafka.topics import Topics

PARTITIONS = 2
_LOOK_AT_DATABASE_S = 0.3
_VISIBLE_S = 30.0
Line = tuple[int, ...]
"""Number of the row, key, total of the key so far, rows of the key so far."""


class Ends:
    """The servers, the input and the output of one run."""

    def __init__(self, root: Path, seed: int) -> None:
        self.broker, self.database = _started(root)
        self.servers: dict[Kind, Server] = {
            Kind.BROKER: self.broker,
            Kind.DATABASE: self.database,
        }
        self._topics = Topics(self.broker.address)
        self.input, self.output = self._topics.new(PARTITIONS), self._topics.new(PARTITIONS)
        self.url = f"postgresql://test@{self.database.address}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            # No key: a row that comes twice is to be seen.
            connection.execute("create table counted (seq int, key int, total bigint, n int)")
        places = {
            "kafka": self.broker.address,
            "input": self.input,
            "output": self.output,
            "database": f"jdbc:postgresql://{self.database.address}",
        }
        (root / "ends.json").write_text(json.dumps(places))
        self.feed = KafkaFeed(self.broker.address, self.input, seed)
        self.reader = EndsReader(self)

    def consumer(self, topic: str) -> Any:
        """Return a consumer of all committed records of a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": "reader of the run",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        return consumer

    def judge(self) -> Verdict:
        """Compare what both servers hold with a recount of what was sent."""
        sent = Counter(_text(row) for row in self.feed.rows)
        arrived = Counter(value.decode() for _, value in self._topics.read(self.input))
        assert arrived == sent, "the input topic does not hold what was sent"
        wanted = Counter(expected(self.feed.rows))
        found = {"Kafka": self._settled(wanted.total()), "PostgreSQL": self._in_database()}
        return verdict(wanted, found)

    def _settled(self, count: int) -> Counter[Line]:
        """Read the output topic; markers of the last transactions come a moment later."""
        deadline, pause = time.monotonic() + _VISIBLE_S, threading.Event()
        while True:
            found = Counter(line_of(value.decode()) for _, value in self._topics.read(self.output))
            if found.total() >= count or time.monotonic() > deadline:
                return found
            pause.wait(0.2)

    def _in_database(self) -> Counter[Line]:
        with psycopg.connect(self.url) as connection:
            return Counter(connection.execute("select seq, key, total, n from counted"))

    def close(self) -> None:
        """End both servers; may be called twice."""
        self.reader.close()
        self.broker.kill()
        self.database.kill()
        self.database.remove()


def _started(root: Path) -> tuple[Broker, Postgres]:
    folders = [root / "kafka", root / "postgres"]
    for folder in folders:
        folder.mkdir(parents=True)
    broker = Broker(folders[0])
    broker.start()
    try:
        database = Postgres(folders[1])
        database.start()
    except BaseException:
        broker.kill()
        raise
    return broker, database


class KafkaFeed:
    """Rows that are appended to the input; a key is always in the same partition."""

    def __init__(self, address: str, topic: str, seed: int) -> None:
        self.rows: list[dict[str, int]] = []
        self._topic = topic
        self._seed = seed
        self._rounds = 0
        # Idempotent: a record is there once and in its place, whatever becomes of the broker.
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
        )

    def add(self) -> int:
        """Append one more round; returns the number of its last row."""
        rng = np.random.default_rng([self._seed, self._rounds])
        keys, amounts = rng.integers(0, KEYS, ROWS), rng.integers(1, 50, ROWS)
        first = len(self.rows)
        fresh = [
            {"seq": first + i, "key": int(key), "amount": int(amount)}
            for i, (key, amount) in enumerate(zip(keys, amounts, strict=True))
        ]
        for row in fresh:
            self._producer.produce(self._topic, _text(row), partition=row["key"] % PARTITIONS)
        assert self._producer.flush(120) == 0, "the broker did not take the input"
        self.rows += fresh
        self._rounds += 1
        return len(self.rows) - 1


class EndsReader:
    """What readers see while the job runs: `shown` are the rows that both servers have."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._consumer: Any = ends.consumer(ends.output)
        self._connection: Any = None
        self._in_kafka: set[int] = set()
        self._in_database: set[int] = set()
        self._looked = 0.0
        self.shown: set[int] = set()

    def look(self) -> None:
        """See what has become visible since the last look; servers may be away."""
        for message in self._consumer.consume(5000, timeout=0.05):
            if message.error() is None:
                self._in_kafka.add(line_of(message.value().decode())[0])
        if time.monotonic() - self._looked > _LOOK_AT_DATABASE_S:
            self._looked = time.monotonic()
            self._ask()
        self.shown = self._in_kafka & self._in_database

    def _ask(self) -> None:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._ends.url, autocommit=True, connect_timeout=2
                )
            found = self._connection.execute("select seq from counted")
            self._in_database = {seq for (seq,) in found}
        except psycopg.Error:
            self._connection = None

    def has_all(self, rows: int) -> bool:
        """Tell whether all rows are in both servers."""
        return len(self.shown) == rows

    def close(self) -> None:
        """Close what was opened."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        if self._connection is not None:
            self._connection.close()


def _text(row: Mapping[str, int]) -> str:
    return f"{row['seq']} {row['key']} {row['amount']}"


def line_of(text: str) -> Line:
    """Return a line of the output."""
    return tuple(map(int, text.split()))


def expected(rows: Iterable[Mapping[str, int]]) -> list[Line]:
    """Return the lines that both servers must hold."""
    totals: dict[int, int] = defaultdict(int)
    counts: dict[int, int] = defaultdict(int)
    lines: list[Line] = []
    for row in rows:
        key = row["key"]
        totals[key] += row["amount"]
        counts[key] += 1
        lines.append((row["seq"], key, totals[key], counts[key]))
    return lines


def verdict(wanted: Counter[Line], found: Mapping[str, Counter[Line]]) -> Verdict:
    """Count what is right, lost, there too often and wrong, in all servers together."""
    counts: list[tuple[int, int, int, int]] = []
    examples: list[str] = []
    for name, lines in found.items():
        missing, surplus = wanted - lines, lines - wanted
        twice = sum(n for line, n in surplus.items() if line in wanted)
        right = (wanted & lines).total()
        counts.append((right, missing.total(), twice, surplus.total() - twice))
        examples += [f"lost in {name}: {line}" for line in list(missing)[:3]]
        examples += [f"too often or wrong in {name}: {line}" for line in list(surplus)[:3]]
    right, lost, duplicated, wrong = map(sum, zip(*counts, strict=True))
    places = tuple(
        f"in {name}: right {n[0]}, lost {n[1]}, duplicated {n[2]}, wrong {n[3]}"
        for name, n in zip(found, counts, strict=True)
    )
    return Verdict(right, lost, duplicated, wrong, 0, examples=tuple(examples), places=places)
