"""`PythonDependencies`: the files, archives and jars that a program ships with itself.

They become configuration; the engine hands them to Spark.
"""

from __future__ import annotations

from weir.common.configuration import Configuration

_FILES = "python.files"
_REQUIREMENTS = "python.requirements"
_ARCHIVES = "python.archives"
_EXECUTABLE = "python.executable"
_JARS = "pipeline.jars"
_CLASSPATHS = "pipeline.classpaths"
_CACHED_FILES = "pipeline.cached-files"


class PythonDependencies:
    """The part of an environment that names what user code needs on the workers."""

    _configuration: Configuration

    def add_python_file(self, file_path: str) -> None:
        """Ship a Python file, package or zip; it can be imported on the workers."""
        self._append(_FILES, str(file_path), ",")

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Name a requirements file; refused at `execute()` where it asks for what is not installed.

        Weir installs nothing, so a directory of downloaded packages is not looked into.
        """
        value = str(requirements_file_path)
        if requirements_cache_dir is not None:
            value = f"{value}#{requirements_cache_dir}"
        self._configuration.set_string(_REQUIREMENTS, value)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive, unpacked at `target_dir`, or at its own name, where functions run."""
        value = str(archive_path) if target_dir is None else f"{archive_path}#{target_dir}"
        self._append(_ARCHIVES, value, ",")

    def set_python_executable(self, python_exec: str) -> None:
        """Name the Python of the workers; refused at `execute()` unless it is the running one."""
        self._configuration.set_string(_EXECUTABLE, str(python_exec))

    def add_jars(self, *jars_path: str) -> None:
        """Keep the names of jars, and warn once: Spark takes its jars by `spark.jars`."""
        for path in jars_path:
            self._append(_JARS, str(path), ";")

    def add_classpaths(self, *classpaths: str) -> None:
        """Keep class paths, and warn once: Spark has settings of its own for them."""
        for path in classpaths:
            self._append(_CLASSPATHS, str(path), ";")

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Keep the file, and warn once: in PyFlink, too, only functions of Java can read it."""
        entry = f"name:{name},path:{file_path},executable:{str(executable).lower()}"
        self._append(_CACHED_FILES, entry, ";")

    def _append(self, key: str, value: str, separator: str) -> None:
        known = self._configuration.get_string(key, "")
        self._configuration.set_string(key, f"{known}{separator}{value}" if known else value)
