"""Says how to install what training needs. Imported before the modules that need it."""

import importlib.util

for _library in ("torch", "safetensors"):
    if importlib.util.find_spec(_library) is None:
        raise ModuleNotFoundError(
            f"training needs {_library}, which is not installed: pip install 'tulle[train]'",
            name=_library,
        )
