"""The sample that is shipped: it imports with its schema as its README says."""

from pathlib import Path

from mpibayes.io.ingest import import_table

SAMPLE = Path(__file__).parents[2] / "examples" / "census_income"


def test_sample_with_its_schema(tmp_path):
    summary = import_table(SAMPLE / "census_income.csv.gz", tmp_path / "t.h5", schema=SAMPLE / "schema.toml")
    kinds = {c.name: c.kind for c in summary.columns}
    assert summary.rows == 12_000 and len(kinds) == 42
    sentinel, equal = summary.warnings
    assert "'capital_gains': 99999 is far from all other values" in sentinel
    assert equal.startswith("17 % of the rows are equal to another one")  # most are children
    assert kinds["instance_weight"] == "ignored" and kinds["industry_code"] == kinds["year"] == "categorical"
    reals = {name for name, kind in kinds.items() if kind == "real"}
    assert reals == {"age", "wage_per_hour", "capital_gains", "capital_losses", "dividends", "weeks_worked"}
    education = next(c for c in summary.table.columns if c.name == "education")
    assert education.levels[0] == "Children" and education.levels[-1].startswith("Doctorate")
    assert (SAMPLE / "census_income.csv.gz").stat().st_size < 1_000_000
