"""PyFlink's path of helpers between Python and Java, of which there are none here."""

from weir.common._absent import INTERNAL, JAVA, absent

__all__: list[str] = []

__getattr__ = absent(
    __name__,
    {
        "ResultTypeQueryable": f"{INTERNAL}: declare types with output_type= or .returns()",
        "convert_to_python_obj pickled_bytes_to_python_converter": INTERNAL,
        "pickled_bytes_to_python_obj": INTERNAL,
        "create_hadoop_configuration create_java_properties": JAVA,
    },
)
