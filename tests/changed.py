"""Names the tests of what changed, one path a line: python tests/changed.py [--base REVISION].

For `make check`, which answers while one works. A test file belongs to a changed module if it
imports it, or a name that the module defines through its package. What is always there: the shape
of the tree, and the contracts that every implementation keeps.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("tests/test_architecture.py", "tests/contract")


def changed_files(base: str) -> list[str]:
    """Files that differ from a revision, and files that git does not know yet."""
    differing = _git("diff", "--name-only", "--diff-filter=d", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({*differing, *new})


def chosen_tests(changed: Iterable[str], root: Path) -> list[str]:
    """Test files that changed, and unit tests that import a module that did.

    Args:
      changed: Paths of changed files, relative to the root.
      root: The checkout.
    """
    tests, modules = set(), set()
    for name in changed:
        path = Path(name)
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            tests.add(name)
        elif path.parts[:2] == ("src", "tulle") and path.suffix == ".py":
            parts = path.with_suffix("").parts[1:]
            modules.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    if modules:
        named = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(modules)))}) import\b")
        for path in (root / "tests" / "unit").rglob("test_*.py"):
            if named.search(path.read_text(encoding="utf-8")):
                tests.add(path.relative_to(root).as_posix())
    return sorted(tests)


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="revision to compare with")
    found = chosen_tests(changed_files(parser.parse_args().base), ROOT)
    beside = [test for test in found if not test.startswith(ALWAYS)]
    sys.stdout.write("\n".join((*ALWAYS, *beside, "")))


if __name__ == "__main__":
    main()
