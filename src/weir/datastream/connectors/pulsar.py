"""PyFlink's path of Pulsar's connector: importing a name says what to use instead."""

from weir.common._absent import absent
from weir.datastream.connectors._elsewhere import PULSAR
from weir.datastream.connectors.base import DeliveryGuarantee as DeliveryGuarantee

__all__: list[str] = []

__getattr__ = absent(__name__, PULSAR)
