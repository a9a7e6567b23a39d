"""PyFlink's path of Java's input formats, of which there are none here."""

from weir.common._absent import absent

__all__: list[str] = []

__getattr__ = absent(
    __name__,
    {"InputFormat": "wraps a format of Java: read the files with env.from_dataframe(spark.read…)"},
)
