"""What a program brings with it, seen from level 0 and from slots of a cluster.

Usage: bringing.py FOLDER BARE MASTER LOGS, where BARE is a Python without Weir.
"""

import logging
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from weir.common import Configuration, Types
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.errors import UsageError


def seen():
    from brought_along import word

    return f"{word()} {Path('data/word.txt').read_text()}"


class InSlot(KeyedProcessFunction):
    """Looks when it is opened."""

    def open(self, runtime_context):
        self.seen = seen()

    def process_element(self, value, ctx):
        yield f"{value[0]} level 0: {value[1]}, slot: {self.seen}"


def rows(folder, logs):
    configuration = Configuration()
    configuration.set_string("weir.log.dir", logs)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.add_python_file(f"{folder}/brought_along.py")
    env.add_python_archive(f"{folder}/data.zip", "data")
    env.set_python_requirements(f"{folder}/requirements.txt")
    env.set_python_executable(sys.executable)
    numbers = env.from_collection([1, 2, 3], Types.LONG()).map(lambda n: (n, seen()))
    with numbers.key_by(lambda row: row[0]).process(InSlot()).execute_and_collect() as found:
        return list(found)


def main(folder, bare, master, logs):
    # As PyFlink's own examples do.
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.showConsoleProgress", "true")
    context = builder.getOrCreate().sparkContext
    chosen, context.pythonExec = context.pythonExec, bare
    try:
        rows(folder, logs)
    except UsageError as error:
        sys.stdout.write(f"{error}\n")
    context.pythonExec = chosen
    for row in rows(folder, logs):
        sys.stdout.write(f"{row}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
