"""`CloseableIterator`: the records of a running job, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic

from weir.common._generics import T_co
from weir.common.job_client import JobClient


class CloseableIterator(Generic[T_co]):
    """Iterates over collected records; closing it cancels a job that still runs.

    Use it with `with`, so that an abandoned job does not go on.

    Example:
        with stream.execute_and_collect() as records:
            found = list(records)
    """

    def __init__(self, records: Iterator[T_co], client: JobClient) -> None:
        """Iterate over the records of a job."""
        self._records = records
        self._client = client
        self._closed = False

    def __iter__(self) -> CloseableIterator[T_co]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> T_co:
        """Wait for the next record."""
        if self._closed:
            raise StopIteration
        return next(self._records)

    def next(self) -> T_co:
        """Wait for the next record, as `next(iterator)` does."""
        return self.__next__()

    def __enter__(self) -> CloseableIterator[T_co]:
        """Return the iterator; leaving the block closes it."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Cancel the job unless it has ended; harmless when repeated."""
        if self._closed:
            return
        self._closed = True
        status = self._client.get_job_status().result()
        if not status.is_globally_terminal_state():
            self._client.cancel().result()
