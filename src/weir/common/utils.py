"""PyFlink's path of wrappers of Java objects, of which there are none here."""

from weir.common._absent import JAVA, absent

__all__: list[str] = []

__getattr__ = absent(__name__, {"JavaObjectWrapper": JAVA})
