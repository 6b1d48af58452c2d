"""Cards, plots and pages about what was released; reads finished runs only."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.report.model_report import write_explanation
    from tulle.report.verbs import WrittenReport, write

__all__ = ["WrittenReport", "write", "write_explanation"]

__getattr__, __dir__ = lazy_names(__name__, __file__)
