"""The report: one page that shows what a model learned and how well it predicts, or how several
compare."""

from deepmf.report.comparison_page import write_comparison
from deepmf.report.page import write_report

__all__ = ["write_comparison", "write_report"]
