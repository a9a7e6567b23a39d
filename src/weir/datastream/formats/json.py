"""JSON: PyFlink's names, and what to use instead of them."""

from weir.common._absent import FORMATS, absent

__getattr__ = absent(__name__, FORMATS)
