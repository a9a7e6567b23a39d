"""PyFlink's path of the Table API, which Weir has not: importing it says what to use instead."""

_WHAT = (
    "weir.table is not there: Weir runs PyFlink's DataStream API. For tables and SQL use Spark's: "
    "spark.sql(…) and env.from_dataframe(…) lead into a program, stream.foreach_batch(…) leads out"
)
raise ImportError(_WHAT, name=__name__)
