from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

from mkdocs.config import load_config
from mkdocs.structure.files import File, Files, InclusionLevel

HOOK = Path(__file__).parents[3] / "docs_site" / "mkdocs_hook.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, File]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "docs").mkdir()
    (folder / "mkdocs.yml").write_text(f"site_name: a\nhooks: [{HOOK}]\n")
    config = load_config(str(folder / "mkdocs.yml"))
    files = config.plugins.run_event("files", Files([]), config=config)
    return {file.src_uri: file for file in files}


def test_the_site_gets_the_reference_and_the_published_records(site: dict[str, File]) -> None:
    assert site["api/tulle.train.md"].content_string.startswith("# tulle.train\n")
    assert '"rows"' in site["benchmarks/published/dpsgd.json"].content_string


def test_only_the_list_of_packages_is_looked_for_in_the_navigation(site: dict[str, File]) -> None:
    assert site["api/index.md"].inclusion is InclusionLevel.UNDEFINED
    assert site["api/tulle.train.md"].inclusion is InclusionLevel.NOT_IN_NAV


def test_links_to_records_lead_to_where_the_site_has_them(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(f"site_name: a\nhooks: [{HOOK}]\n")
    config = load_config(str(tmp_path / "mkdocs.yml"))
    text = "see [a.json](../benchmarks/published/a.json)"
    changed = config.plugins.run_event("page_markdown", text, page=None, config=config, files=None)
    assert changed == "see [a.json](benchmarks/published/a.json)"
