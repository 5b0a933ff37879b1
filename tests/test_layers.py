"""Imports go the ways that the table of docs/architecture.md allows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "toktier_jax"
ROW = re.compile(r"^\| `(\w+)(?:/|\.py)` \|[^|]*\|([^|(]*)(?:\(([^)]*)\))? *\|$", re.MULTILINE)


def rows() -> dict[str, tuple[set[str], set[str]]]:
    """Of each folder and module: what it may import, and what when it is called or for types alone."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    return {name: (_names(always), _names(late or "")) for name, always, late in ROW.findall(page)}


def _names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def parts() -> dict[str, list[Path]]:
    """The files of each folder and module of the package."""
    found: dict[str, list[Path]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        found.setdefault(file.relative_to(PACKAGE).parts[0].removesuffix(".py"), []).append(file)
    return found


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """The folders and modules that a file imports, and whether it does so as soon as it is imported."""
    tree = ast.parse(file.read_text())
    first = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, inner = name.partition(".")
            if package == "toktier_jax" and inner:
                yield inner.split(".")[0], id(node) in first


def test_every_module_has_a_row_and_every_row_a_module() -> None:
    assert rows().keys() == parts().keys()


@pytest.mark.parametrize("name", parts())
def test_a_module_imports_no_more_than_its_row_says(name: str) -> None:
    always, late = rows()[name]
    found = {each for file in parts()[name] for each in imports(file)}
    others = {(module, now) for module, now in found if module not in (name, "errors")}
    assert {module for module, now in others if now} <= always
    assert {module for module, _ in others} <= always | late
