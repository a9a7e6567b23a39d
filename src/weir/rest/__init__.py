"""Flink's REST for the jobs of this process: one server on the standard library."""

from weir.rest.server import RestServer, endpoint
from weir.rest.settings import RestSettings

__all__ = ["RestServer", "RestSettings", "endpoint"]
