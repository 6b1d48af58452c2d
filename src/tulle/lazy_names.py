"""Public names of a package that are imported on first use (PEP 562).

`import tulle` must load no library, and nobody should write a list of names twice at run time. A
package imports its public names under TYPE_CHECKING, where editors and type checkers read them,
and lists them in `__all__`; what is read here at run time are the same lines of its source.
"""

import ast
import functools
import importlib
from collections.abc import Callable
from pathlib import Path


def lazy_names(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Makes `__getattr__` and `__dir__` of a package that imports names under TYPE_CHECKING.

    Args:
      package: The `__name__` of the package.
      file: The `__file__` of the package.

    Returns:
      `__getattr__`, which imports a name when it is first asked for, and `__dir__`, which shows
      the public names alone.
    """

    @functools.cache
    def homes() -> dict[str, str]:
        return _imported_names(ast.parse(Path(file).read_text(encoding="utf-8")))

    def get(name: str) -> object:
        # Names with underscores are asked for by the interpreter itself, and none is public.
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(homes()[name])
        return (
            importlib.import_module(f"{package}.{name}")
            if home.__name__ == package
            else (getattr(home, name))
        )

    return get, lambda: sorted(homes())


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Maps each name that is imported under TYPE_CHECKING to the module that it comes from."""
    return {
        alias.name: statement.module
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
    }
