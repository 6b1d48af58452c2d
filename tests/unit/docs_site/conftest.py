"""Makes the modules of docs_site importable, as mkdocs does for its hook."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "docs_site"))
