"""Every dependency has a range with an end, and the lock file of the tests keeps to it."""

import functools
import importlib.metadata
import pathlib
import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements-test.lock").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
OF_A_BUILD_OF_TORCH = re.compile(r"(nvidia|cuda|triton|pytorch-triton)\b")
"""Packages that come with builds of torch for accelerators; the lock file has none of them."""
PYTHONS = ("3.11", "3.12", "3.13")

Pins = dict[str, list[Requirement]]


def declared() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for: to build, to run, and in each extra."""
    groups = {
        "build": PROJECT["build-system"]["requires"],
        "run": PROJECT["project"]["dependencies"],
        **PROJECT["project"]["optional-dependencies"],
    }
    return {name: [Requirement(text) for text in texts] for name, texts in groups.items()}


def named_in_makefile(variable: str) -> list[str]:
    (words,) = re.findall(rf"^{variable} := (.+)$", MAKEFILE, flags=re.MULTILINE)
    return re.split(r"[ ,]", words)


def entries_of(lock: str) -> list[str]:
    """Each requirement of a lock file with its hashes, as one line."""
    lines = lock.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip() and line[0] != "#"]


def pins_of(lock: str) -> Pins:
    pins: Pins = {}
    for entry in entries_of(lock):
        requirement = Requirement(entry.partition(" --hash")[0])
        pins.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return pins


def pinned(pins: Pins, name: str, python: str) -> Version | None:
    """The version that a Python gets of a package; None if it gets none."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    versions = [
        Version(next(iter(pin.specifier)).version)
        for pin in pins.get(canonicalize_name(name), [])
        if pin.marker is None or pin.marker.evaluate(environment)
    ]
    return versions[0] if len(versions) == 1 else None


def faults_of(lock: str) -> list[str]:
    """What is wrong with the form of a lock file."""
    faults = []
    for entry in entries_of(lock):
        requirement, *hashes = entry.split(" --hash=")
        if not re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .+)?", requirement):
            faults.append(f"not one version of one package: {requirement}")
        if not hashes or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes):
            faults.append(f"without a hash, or with a wrong one: {requirement}")
    return faults


def installed_needs(name: str, extras: frozenset[str] = frozenset()) -> list[Requirement]:
    """What the installed version of a package asks for on this machine."""
    needs = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return [
        need
        for need in needs
        if need.marker is None
        or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


@functools.cache
def needed_here() -> frozenset[str]:
    """All that the tests need on this machine but torch, by what installed packages ask for."""
    seen: set[str] = set()
    extras = frozenset(named_in_makefile("TEST_EXTRAS"))
    open_ends = [*installed_needs("tulle", extras), *installed_needs("torch")]
    while open_ends:
        need = open_ends.pop()
        name = canonicalize_name(need.name)
        if name not in seen and name != "torch" and not OF_A_BUILD_OF_TORCH.match(name):
            seen.add(name)
            open_ends += installed_needs(name, frozenset(need.extras))
    return frozenset(seen)


@pytest.mark.parametrize("group", declared())
def test_every_dependency_has_a_first_and_a_last_version(group: str) -> None:
    for requirement in declared()[group]:
        operators = {each.operator for each in requirement.specifier}
        assert operators == {">=", "<"}, f"{group}: {requirement}"


def test_the_lock_file_has_exact_versions_with_hashes_and_names_no_place() -> None:
    assert len(entries_of(LOCK)) > 50
    assert faults_of(LOCK) == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("rich==15.0.0\n", "without a hash"),
        ("rich==15.0.0 \\\n    --hash=md5:00\n", "wrong one"),
        (f"rich>=15 \\\n    --hash=sha256:{'0' * 64}\n", "not one version"),
        (f"rich @ https://an.example/rich.whl --hash=sha256:{'0' * 64}\n", "not one version"),
        ("--index-url https://an.example/simple\n", "not one version"),
    ],
)
def test_a_wrong_line_of_a_lock_file_is_seen(wrong: str, fault: str) -> None:
    assert any(fault in found for found in faults_of(LOCK + wrong))


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_file_has_all_that_the_tests_declare_within_its_range(python: str) -> None:
    pins, groups = pins_of(LOCK), declared()
    for group in ("run", *named_in_makefile("TEST_EXTRAS")):
        for requirement in groups[group]:
            version = pinned(pins, requirement.name, python)
            assert version is not None, f"{requirement.name} is not in the lock file: make lock"
            assert version in requirement.specifier, f"{requirement}: make lock"


def test_tests_are_installed_from_the_lock_file_with_hashes() -> None:
    recipe = MAKEFILE.partition("$(VENV)/.installed-dev: ")[2].partition("\n\n")[0]
    assert "$(LOCK)" in recipe.partition("\n")[0]
    assert "install --quiet --require-hashes --no-deps -r $(LOCK)" in recipe


def test_the_extras_of_the_tests_are_all_but_that_of_torch() -> None:
    assert {*named_in_makefile("TEST_EXTRAS"), "train"} == {*declared()} - {"build", "run"}


def test_the_lock_file_has_whatever_the_tests_need_here() -> None:
    assert {name for name in needed_here() if name not in pins_of(LOCK)} == set()


def test_torch_is_not_locked_but_what_it_needs_is() -> None:
    pins = pins_of(LOCK)
    assert not [name for name in pins if name == "torch" or OF_A_BUILD_OF_TORCH.match(name)]
    for name in named_in_makefile("BESIDE_TORCH"):
        assert name in pins
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for need in installed_needs("torch"):
        if not OF_A_BUILD_OF_TORCH.match(canonicalize_name(need.name)):
            version = pinned(pins, need.name, here)
            assert version is not None, need
            assert version in need.specifier, need


def test_constraints_keep_to_the_ranges_and_the_lock_file_to_the_constraints() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    pins = pins_of(LOCK)
    ranges = {each.name: each.specifier for group in declared().values() for each in group}
    for constraint in map(Requirement, lines):
        if constraint.name in ranges:
            (exact,) = constraint.specifier
            assert exact.version in ranges[constraint.name], constraint
        if constraint.name != "torch":
            for python in PYTHONS:
                assert pinned(pins, constraint.name, python) in constraint.specifier, constraint
