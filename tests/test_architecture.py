"""The shape of the tree: layers point down, fences hold, files and functions stay small."""

import ast
import collections
import functools
import pathlib
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "tulle"
FILES = sorted(SOURCE.rglob("*.py"))

LAYERS = {
    "lazy_names": -2,
    "errors": -2,
    "atomic_files": -1,
    "scratch_folders": -1,
    "compiled_code": 0,
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
    "loading": 5,
    "serve": 5,
    "audit": 5,
    "report": 6,
    "studio": 7,
    "lab": 7,
    "cli": 8,
}

FENCES = {
    "dp_accounting": ("accounting",),
    "torch": ("train", "audit", "lab"),
    "duckdb": ("measure/engines", "data"),
    "sqlglot": ("measure/engines", "data", "serve"),
    "onnx": ("serve",),
    "pyspark": ("measure/engines", "data"),
    "datasketches": ("lab",),
    "polars": ("data", "measure", "labels", "runs", "select", "serve", "lab"),
    "starlette": ("studio",),
    "uvicorn": ("studio",),
    "typer": ("cli",),
    "rich": ("cli",),
    "pickle": (),
    "sklearn": ("train",),
}

NOTEBOOK_VIEW = "_repr_html_"
"""The one method that may load `report` from below: a notebook asks whatever it holds for a page,
and pages are made of finished results by a higher layer. Nothing else depends on what it loads."""
ALLOWED_OUTSIDE = {"privacy": set(), "mechanisms": {"numpy"}, "quality": {"numpy"}}
STANDARD_LIBRARY = __import__("sys").stdlib_module_names


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        yield from imports_of_one(node)


def imports_of_one(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_below(tree: ast.AST) -> list[str]:
    """Imports that must keep the layers: all but the page that a notebook asks for."""
    views = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == NOTEBOOK_VIEW
    ]
    found = collections.Counter(imports_of(tree))
    for view in views:
        found -= collections.Counter(
            name for name in imports_of(view) if package_of_import(name) == "report"
        )
    return sorted(found)


def is_for_types(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a block is read by type checkers alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


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


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function; what documents each of its parameters does not count."""
    first = function.body[0]
    is_documented = ast.get_docstring(function) is not None
    documented = (first.end_lineno or 0) - first.lineno + 1 if is_documented else 0
    return (function.end_lineno or 0) - function.lineno - documented


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
    """The syntax of a file, parsed once; nobody may change it."""
    return ast.parse(path.read_text())


def test_every_package_is_in_the_tree_of_the_design() -> None:
    assert {package_of(path) for path in FILES} - {"__init__"} == set(LAYERS)


@pytest.mark.parametrize("package", LAYERS)
def test_a_package_keeps_layers_and_fences(package: str) -> None:
    for path in FILES:
        if package_of(path) != package:
            continue
        imported = list(imports_of(tree_of(path)))
        assert layer_problems(package, imported_below(tree_of(path))) == [], path
        assert fence_problems(path.relative_to(SOURCE).as_posix(), imported) == [], path
        if package in ALLOWED_OUTSIDE:
            outside = {name.split(".")[0] for name in imported} - STANDARD_LIBRARY - {"tulle"}
            assert outside <= ALLOWED_OUTSIDE[package], path


@pytest.mark.parametrize("package", LAYERS)
def test_files_and_functions_of_a_package_are_small(package: str) -> None:
    for path in FILES:
        if package_of(path) == package:
            assert path.read_text().count("\n") <= 500, path
            check_functions(path, package)


def check_functions(path: pathlib.Path, package: str) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert code_lines(node) <= 80, (path, node.name)
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [p for p in parameters if p.arg not in {"self", "cls"}]
            # A command takes its options one by one, the verb of the front door that it calls
            # the same ones, a kernel its pointers and sizes; everything else takes a config.
            is_verb = path.name.endswith("verbs.py") and not node.name.startswith("_")
            estimators = ("estimator.py", "classifier.py", "regressor.py")
            is_estimator = path.name in estimators and node.name == "__init__"
            is_verb = is_verb or is_estimator
            is_listed = package == "cli" or is_verb or path.name.endswith("_kernels.py")
            assert len(named) <= 7 or is_listed, (path, node.name)
        assert not isinstance(node, ast.Assert), f"{path}: no assert outside tests"


def test_only_the_lab_and_its_commands_load_the_lab() -> None:
    """A command may import it inside a function; the product never does."""
    for path in FILES:
        package = package_of(path)
        if package in ("lab", "__init__"):
            continue
        tree = tree_of(path)
        loaded = [node for node in tree.body if not isinstance(node, ast.FunctionDef)]
        at_once = [name for node in loaded if not is_for_types(node) for name in imports_of(node)]
        found = at_once if package == "cli" else imports_of(tree)
        assert [name for name in found if package_of_import(name) == "lab"] == [], path


def test_most_files_are_short() -> None:
    sizes = sorted(path.read_text().count("\n") for path in FILES if path.name != "__init__.py")
    # An idea usually takes 150 to 350 lines: half of the files stay below the middle of that.
    assert sizes[len(sizes) // 2] <= 250
    # Longer ones are an idea that would be read through several doors otherwise.
    assert sum(size > 350 for size in sizes) <= len(sizes) // 8


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
            assert questions_about_methods(tree_of(path)) == [], path


def run_time_imports(tree: ast.Module) -> list[str]:
    """Imports that happen, at once or when a function is called; not those for types alone."""
    for_types = {
        id(part) for node in ast.walk(tree) if is_for_types(node) for part in ast.walk(node)
    }
    happening = [node for node in ast.walk(tree) if id(node) not in for_types]
    return [name for node in happening for name in imports_of_one(node)]


def node_of(module: str, package: str) -> str | None:
    """The folder of a package that a module is in; a module at its root is a node of its own."""
    parts = module.split(".")
    if parts[:2] != ["tulle", package] or len(parts) < 3:
        return None
    is_folder = (SOURCE / package / parts[2]).is_dir()
    return parts[2] if is_folder or len(parts) == 3 else None


def edges_of(package: str, imports: dict[str, list[str]]) -> dict[str, set[str]]:
    """Which folders and root modules of a package import which, at run time."""
    edges: dict[str, set[str]] = {}
    for module, imported in imports.items():
        if (node := node_of(module, package)) is None:
            continue
        found = {other for name in imported if (other := node_of(name, package)) is not None}
        edges.setdefault(node, set()).update(found - {node})
    return edges


def cycle_in(edges: dict[str, set[str]]) -> list[str]:
    """Nodes that are reached from themselves; empty if there are none."""

    def reached(start: str) -> set[str]:
        waiting, seen = list(edges.get(start, ())), set()
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += edges.get(node, ())
        return seen

    return sorted(node for node in edges if node in reached(node))


def test_folders_of_a_package_form_no_cycle() -> None:
    trees = {path: tree_of(path) for path in FILES if path.name != "__init__.py"}
    modules = {
        ".".join(("tulle", *path.relative_to(SOURCE).with_suffix("").parts)): tree
        for path, tree in trees.items()
    }
    imports = {
        name: [used for used in run_time_imports(tree) if used in modules]
        for name, tree in modules.items()
    }
    for package in LAYERS:
        assert cycle_in(edges_of(package, imports)) == [], package


def homes_of_public_classes(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The modules that define a public class of each name."""
    homes: dict[str, list[str]] = {}
    for module, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    return homes


def test_a_public_class_name_means_one_thing() -> None:
    """An editor's index leads to one place, and an error names one thing."""
    modules = {str(path.relative_to(SOURCE)): tree_of(path) for path in FILES}
    shared = {name: at for name, at in homes_of_public_classes(modules).items() if len(at) > 1}
    assert shared == {}


NOT_REACHED = {
    "settings_schema": "no command prints the JSON Schema of training settings yet",
    "write_schema": "schemas are written by hand; tests write them to read them back",
}
"""Names of `src` that no command, public name or page leads to, and why they stay."""


def names_in(node: ast.AST) -> set[str]:
    """Every word that code of this node may reach something by: names, attributes, quoted ones."""
    found = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            # What is loaded late or compared with by its name, and annotations in quotes.
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.:|\[\] ]+", text):
                found.update(re.findall(r"\w+", text))
    return found - ({node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set())


def defined_by(node: ast.stmt) -> list[str]:
    """Names that a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def words_of_pages(pages: list[str]) -> set[str]:
    """Words of the code in pages: of blocks and of what is set in backticks."""
    code = (part for page in pages for part in re.findall(r"```.*?```|`[^`\n]+`", page, re.DOTALL))
    return set(re.findall(r"\w+", " ".join(code)))


def not_reached(modules: dict[str, ast.Module], documented: set[str]) -> set[str]:
    """Top-level names that no command, `__all__`, page or running statement leads to.

    By name alone: two things of one name are both reached if one is, and a class with all it has.
    """
    uses: dict[str, set[str]] = {}
    reached, waiting = set[str](), set(documented)
    for path, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom) or is_for_types(node):
                continue
            names = defined_by(node)
            is_command = path.startswith("cli/") and bool(getattr(node, "decorator_list", []))
            if not names or is_command or names == ["__all__"]:
                waiting |= names_in(node) | set(names)
            for name in names:
                uses.setdefault(name, set()).update(names_in(node))
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting |= uses.get(name, set()) - reached
    return uses.keys() - reached


def test_a_command_a_public_name_or_a_page_leads_to_everything() -> None:
    """What nothing leads to is dead, or belongs to the tests or the benchmark that use it."""
    root = SOURCE.parents[1]
    pages = [page.read_text() for page in (*root.glob("docs/**/*.md"), root / "README.md")]
    examples = (names_in(ast.parse(path.read_text())) for path in root.glob("examples/**/*.py"))
    documented = words_of_pages(pages).union(*examples)
    modules = {path.relative_to(SOURCE).as_posix(): tree_of(path) for path in FILES}
    assert not_reached(modules, documented) == NOT_REACHED.keys()


def test_the_checks_can_fail() -> None:
    through = {
        "tulle.train.steps.host": ["tulle.train.fitting"],
        "tulle.train.fitting": ["tulle.train.methods.hybrid"],
        "tulle.train.methods.hybrid": ["tulle.train.steps.host"],
    }
    assert cycle_in(edges_of("train", through)) == ["fitting", "methods", "steps"]
    through["tulle.train.methods.hybrid"] = []
    assert cycle_in(edges_of("train", through)) == []
    classes = {"a.py": ast.parse("class Kind: ..."), "b.py": ast.parse("class Kind: ...")}
    assert homes_of_public_classes(classes) == {"Kind": ["a.py", "b.py"]}
    question = "isinstance(plan.method, DpSgdConfig | HybridConfig)"
    assert len(questions_about_methods(ast.parse(question))) == 2
    assert layer_problems("mechanisms", ["tulle.accounting.ledger"]) == ["accounting"]
    assert layer_problems("privacy", ["tulle.cli.main"]) == ["cli"]
    assert layer_problems("cli", ["tulle.privacy.units"]) == []
    shown = "class A:\n    def {}(self):\n        from tulle.{} import a"
    assert layer_problems("runs", imported_below(ast.parse(shown.format("show", "report"))))
    assert layer_problems("runs", imported_below(ast.parse(shown.format(NOTEBOOK_VIEW, "train"))))
    assert imported_below(ast.parse(shown.format(NOTEBOOK_VIEW, "report"))) == []
    assert fence_problems("mechanisms/laplace.py", ["dp_accounting.pld"]) == ["dp_accounting"]
    assert fence_problems("accounting/rdp.py", ["dp_accounting.pld"]) == []
    assert fence_problems("train/step.py", ["pickle"]) == ["pickle"]
    code = "def first(): second()\ndef second(): second()\ndef third(): first\nX = 'second'"
    house = {"cli/a.py": ast.parse("@command\ndef go(): third()"), "b.py": ast.parse(code)}
    assert not_reached(house, set()) == {"X"}
    house["cli/a.py"] = ast.parse("@command\ndef go(): pass")
    assert not_reached(house, {"second"}) == {"X", "first", "third"}
    assert not_reached(house, words_of_pages(["first, `third()`"])) == {"X"}
