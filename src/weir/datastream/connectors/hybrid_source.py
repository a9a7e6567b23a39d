"""PyFlink's path of sources one after the other: importing a name says what to use instead."""

from weir.common._absent import absent
from weir.datastream.connectors._elsewhere import HYBRID

__all__: list[str] = []

__getattr__ = absent(__name__, HYBRID)
