"""Spark's own aggregation in windows, as SQL on the JVM: what needs no Python function.

Results come when the watermark, which is one epoch behind, has passed a window; those in processing
time with every epoch in which they changed.
"""

from __future__ import annotations

from typing import Any

from benchmarks.contenders import floors
from benchmarks.contenders.protocol import Outcome, Task, of_epoch_ends
from benchmarks.workloads.catalogue import (
    AUCTION,
    CLOSING_KEY,
    GAP_MS,
    PERSON,
    SLIDE_MS,
    TUMBLE_MS,
)
from benchmarks.workloads.checksum import of_rows

SIZE, SLIDE, GAP = (f"{ms} milliseconds" for ms in (TUMBLE_MS, SLIDE_MS, GAP_MS))
END = "unix_millis(window.end) as end"


def tumbling(frame: Any, *keys: str) -> Any:
    """Group by windows, and by keys."""
    from pyspark.sql import functions as f

    return frame.groupBy(f.window("at", SIZE), *keys)


def sums(frame: Any) -> Any:
    """The sum of each key in each window."""
    from pyspark.sql import functions as f

    found = tumbling(frame, "key").agg(f.sum("value").alias("total"))
    return found.selectExpr("key", "total", END)


def hot_items(frame: Any) -> Any:
    """The auctions with the most bids in each sliding window."""
    from pyspark.sql import functions as f

    counts = frame.groupBy(f.window("at", SIZE, SLIDE), "auction").count()
    found = counts.groupBy("window").agg(
        f.max("count").alias("most"), f.collect_list(f.struct("auction", "count")).alias("counts")
    )
    each = found.selectExpr("explode(filter(counts, c -> c.count = most)) as c", END)
    return each.selectExpr("c.auction", "c.count", "end")


def highest_bids(frame: Any) -> Any:
    """The bid with the highest price in each window."""
    from pyspark.sql import functions as f

    bid = f.max_by(f.struct("auction", "bidder", "price"), "price").alias("bid")
    return tumbling(frame).agg(bid).selectExpr("bid.*", END)


def new_users(frame: Any) -> Any:
    """Who is new in a window and sells something in it."""
    from pyspark.sql import functions as f

    found = tumbling(frame, "id").agg(f.bit_or("kind").alias("kinds"))
    return found.where(f"kinds = {PERSON | AUCTION}").selectExpr("id", END)


def sessions(frame: Any) -> Any:
    """How many bids a bidder makes without a longer pause."""
    from pyspark.sql import functions as f

    found = frame.groupBy(f.session_window("at", GAP).alias("window"), "bidder").count()
    return found.selectExpr("bidder", "count", "unix_millis(window.start) as start", END)


def by_the_clock(frame: Any) -> Any:
    """How many bids a bidder makes in each window of processing time."""
    return tumbling(frame, "bidder").count().selectExpr("bidder", "count", END)


QUERIES = {
    "window-sum": sums,
    "hot-items": hot_items,
    "highest-bid": highest_bids,
    "new-users": new_users,
    "sessions": sessions,
    "processing-time": by_the_clock,
}


def run(spark: Any, task: Task) -> Outcome:
    """Run the query of a workload."""
    dataset = task.input
    workload = dataset.workload
    at = "timestamp_millis(ts)" if workload.has_event_time else "current_timestamp()"
    frame = floors.stream(spark, task).selectExpr("*", f"{at} as at")
    results = QUERIES[workload.kind](frame.withWatermark("at", "0 seconds"))
    rows: list[tuple[Any, ...]] = []

    def epoch(out: Any, number: int) -> None:
        if task.verify:
            rows.extend(tuple(row) for row in out.collect())
        else:
            out.write.format("noop").mode("overwrite").save()

    mode = "append" if workload.has_event_time else "update"
    ends = floors.follow(results.writeStream.outputMode(mode), task, epoch)
    outcome = of_epoch_ends(task, ends, dataset.size.warm)
    if task.verify:
        if not workload.has_event_time:
            rows = every_bid(rows)
        real = [row for row in rows if row[0] != CLOSING_KEY]
        outcome.checksum = of_rows(real, workload.groups).to_json()
    return outcome


def every_bid(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the last count of each bidder and window as what was counted."""
    last = {(bidder, end): count for bidder, count, end in rows}
    return [(bidder,) for (bidder, _), count in last.items() for _ in range(count)]
