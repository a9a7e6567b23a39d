"""Base classes of connectors, at PyFlink's path."""

from weir.common._absent import INTERNAL, absent
from weir.connector.delivery import DeliveryGuarantee
from weir.connector.file_source import Source
from weir.connector.sink import Sink, SinkWriter, WriterContext
from weir.connector.two_phase import TwoPhaseCommitSinkFunction
from weir.connector.undecoded import DEAD_LETTERS

__all__ = [
    "DEAD_LETTERS",
    "DeliveryGuarantee",
    "Sink",
    "SinkWriter",
    "Source",
    "TwoPhaseCommitSinkFunction",
    "WriterContext",
]

__getattr__ = absent(
    __name__,
    {
        "StreamTransformer SupportsPreprocessing": f"{INTERNAL}: change the stream in front of the "
        "sink",
    },
)
