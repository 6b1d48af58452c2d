"""Adds to the site, when it is built, what does not lie among the docs.

That is the reference, which is made from the source, and the published records, which pages
link to where they lie in the repository.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from public_names import read_library
from reference_pages import reference_pages

ROOT = Path(__file__).resolve().parents[1]
RECORDS = "benchmarks/published"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs with the files that it found."""
    for path, text in reference_pages(read_library(ROOT / "src" / "tulle")).items():
        is_listed = path == "api/index.md"
        level = InclusionLevel.UNDEFINED if is_listed else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, path, content=text, inclusion=level))
    for record in sorted((ROOT / RECORDS).glob("*.json")):
        path = f"{RECORDS}/{record.name}"
        files.append(File.generated(config, path, abs_src_path=str(record)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs with the text of every page, before its links are followed."""
    return markdown.replace(f"](../{RECORDS}/", f"]({RECORDS}/")
