from tests.crosscat.report.conftest import run_dir, table

__all__ = ["run_dir", "table"]
