"""PyFlink's path of topics in changing clusters: importing a name says what to use instead."""

from weir.common._absent import absent
from weir.datastream.connectors._elsewhere import DYNAMIC_KAFKA

__all__: list[str] = []

__getattr__ = absent(__name__, DYNAMIC_KAFKA)
