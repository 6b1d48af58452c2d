"""The shape of the tree: layers point down, fences hold, files and functions stay small."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "tulle"
FILES = sorted(SOURCE.rglob("*.py"))

LAYERS = {
    "errors": -1,
    "durable_files": -1,
    "scratch_folders": -1,
    "privacy": 0,
    "mechanisms": 1,
    "accounting": 1,
    "data": 2,
    "quality": 2,
    "runs": 3,
    "train": 4,
    "labels": 4,
    "measure": 4,
    "select": 4,
    "audit": 5,
    "report": 6,
    "studio": 7,
    "cli": 8,
}

FENCES = {
    "dp_accounting": ("accounting",),
    "torch": ("train", "audit"),
    "duckdb": ("measure/engines", "data"),
    "sqlglot": ("measure/engines", "data"),
    "pyspark": ("measure/engines", "data"),
    "datasketches": ("measure/reach",),
    "polars": ("data", "measure", "labels"),
    "matplotlib": ("report",),
    "starlette": ("studio",),
    "uvicorn": ("studio",),
    "typer": ("cli",),
    "rich": ("cli",),
    "pickle": (),
}

ALLOWED_OUTSIDE = {"privacy": set(), "mechanisms": {"numpy"}, "quality": {"numpy"}}
STANDARD_LIBRARY = __import__("sys").stdlib_module_names


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_of(path: pathlib.Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def package_of_import(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "tulle" and len(parts) > 1 else None


def layer_problems(package: str, imported: list[str]) -> list[str]:
    others = {p for name in imported if (p := package_of_import(name)) and p in LAYERS}
    others.discard(package)
    return sorted(other for other in others if LAYERS[other] >= LAYERS[package])


def fence_problems(path_in_package: str, imported: list[str]) -> list[str]:
    tops = {name.split(".")[0] for name in imported}
    return sorted(
        top
        for top in tops & FENCES.keys()
        if not any(path_in_package.startswith(f"{home}/") for home in FENCES[top])
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_keeps_layers_fences_and_size(path: pathlib.Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    package = package_of(path)
    if package == "__init__":
        return
    assert package in LAYERS, f"{package} is not in the design's tree"
    imported = list(imports_of(tree))
    assert layer_problems(package, imported) == []
    assert fence_problems(path.relative_to(SOURCE).as_posix(), imported) == []
    if package in ALLOWED_OUTSIDE:
        outside = {name.split(".")[0] for name in imported} - STANDARD_LIBRARY - {"tulle"}
        assert outside <= ALLOWED_OUTSIDE[package]
    assert text.count("\n") <= 500
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno <= 80, node.name
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [p for p in parameters if p.arg not in {"self", "cls"}]
            # A command takes its options one by one, a kernel its pointers and sizes;
            # everything else takes a config.
            is_listed = package == "cli" or path.name.endswith("_kernels.py")
            assert len(named) <= 7 or is_listed, node.name
        assert not isinstance(node, ast.Assert), "no assert outside tests"


def test_most_files_are_short() -> None:
    sizes = sorted(path.read_text().count("\n") for path in FILES if path.name != "__init__.py")
    assert sizes[len(sizes) // 2] <= 200
    assert sum(size > 350 for size in sizes) <= len(sizes) // 10


@pytest.mark.parametrize("name", ["utils", "common", "helpers", "base", "misc"])
def test_no_file_is_a_drawer(name: str) -> None:
    assert [path for path in FILES if path.stem == name] == []


METHOD_CLASSES = (
    *("MosaicConfig", "HybridConfig", "DpSgdConfig", "RandomizedLabelsConfig"),
    *("LabelProjectionConfig", "NonPrivateConfig"),
)


def questions_about_methods(tree: ast.AST) -> list[str]:
    """Places that ask which training method they have, in place of asking the method itself."""
    found = []
    for node in ast.walk(tree):
        is_question = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if is_question:
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            found += [f"line {node.lineno}: {name}" for name in METHOD_CLASSES if name in names]
    return found


def test_nobody_asks_which_training_method_it_is() -> None:
    for path in FILES:
        if "train/methods" not in path.as_posix():
            assert questions_about_methods(ast.parse(path.read_text())) == [], path


def test_the_checks_can_fail() -> None:
    question = "isinstance(plan.method, DpSgdConfig | HybridConfig)"
    assert len(questions_about_methods(ast.parse(question))) == 2
    assert layer_problems("mechanisms", ["tulle.accounting.ledger"]) == ["accounting"]
    assert layer_problems("privacy", ["tulle.cli.main"]) == ["cli"]
    assert layer_problems("cli", ["tulle.privacy.units"]) == []
    assert fence_problems("mechanisms/laplace.py", ["dp_accounting.pld"]) == ["dp_accounting"]
    assert fence_problems("accounting/rdp.py", ["dp_accounting.pld"]) == []
    assert fence_problems("train/step.py", ["pickle"]) == ["pickle"]
