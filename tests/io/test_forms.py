"""Numbers as people write them are read, for what they are, in this file and in later ones; and markers by value."""

import numpy as np
import pyarrow as pa
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.forms import Form, NumbersLike, decimals_of, form_of
from mpibayes.io.ingest import import_table
from mpibayes.io.recode import opened_like, read_like
from tests.io.importing import imported_columns

G = np.random.Generator(np.random.Philox(5))


@pytest.mark.parametrize(
    "texts, form, plain",
    [
        (["1,5", "-2,25", "3"], Form(","), ["1.5", "-2.25", "3"]),
        (["1.234,5", "12,0", "1.234.567,25"], Form(",", "."), ["1234.5", "12.0", "1234567.25"]),
        (["1,234.5", "12"], Form(".", ","), ["1234.5", "12"]),
        (["1,234,567", "1,234"], Form(".", ","), ["1234567", "1234"]),
        (["1.234.567", "1.234"], Form(",", "."), ["1234567", "1234"]),
        (["1 234 567", "12"], Form(".", " "), ["1234567", "12"]),
        (["1\u00a0234,5", "1\u202f234"], Form(",", " "), ["1234.5", "1234"]),
        (["1'234.5", "7"], Form(".", "'"), ["1234.5", "7"]),
        (["$1,234.50", "$3", "-$4", "$-5"], Form(".", ",", "$"), ["1234.50", "3", "-4", "-5"]),
        (["12 €", "3,50 €"], Form(",", "", "€"), ["12", "3.50"]),
        (["EUR 12", "EUR 1.5"], Form(".", "", "EUR"), ["12", "1.5"]),
        (["12.5 %", "3%"], Form(".", "", "%"), ["12.5", "3"]),
        (["\u22124,5", "+1,0"], Form(","), ["-4.5", "+1.0"]),
    ],
)
def test_forms(texts, form, plain):
    assert form_of(texts) == (form, None) and form.plain(pa.array(texts)).to_pylist() == plain
    assert form.plain(pa.array(["", "x", "1;5", "12,34,5"])).to_pylist() == [""] * 4


@pytest.mark.parametrize(
    "texts",
    [
        ["1.5", "2"],
        ["1.234"],
        ["1e5", "2"],
        ["abc", "1,5"],
        ["1,2,3"],
        ["12,34.5"],
        ["2020-01-01"],
        ["$5", "6"],
        [],
        ["%"],
    ],
)
def test_what_has_no_form(texts):
    assert form_of(texts) == (None, None)


def test_one_comma_and_three_digits_may_be_either():
    assert form_of(["1,234", "5,678"]) == (Form(","), Form(".", ","))
    assert form_of(["1,234", "5,678"], decimal=",") == (Form(","), None)
    assert form_of(["1,234", "5,678"], thousands=",") == (Form(".", ","), None)
    assert form_of(["1,5", "2,25"], ",", ".") == (Form(","), None)  # groups that no number is large enough for


def european(n=150, extra=""):
    """income with decimal commas and points, height with commas."""
    income, height = np.round(np.exp(8 + G.standard_normal(n)), 2), np.round(1.7 + 0.1 * G.standard_normal(n), 2)
    lines = [
        f"{f'{a:,.2f}'.translate(str.maketrans(',.', '.,'))};{f'{b:.2f}'.replace('.', ',')}"
        for a, b in zip(income, height)
    ]
    return "income;height\n" + "\n".join(lines) + "\n" + extra, income, height


def test_decimal_commas_are_numbers(tmp_path):
    text, income, height = european()
    summary, columns = imported_columns(tmp_path, text)
    assert columns["income"].kind == columns["height"].kind == "real"
    assert columns["height"].reason.startswith("numbers with decimal commas; in steps of 0.01")
    assert "points between thousands" in columns["income"].reason and not summary.warnings
    rows = summary.table.read()
    np.testing.assert_allclose(rows.reals, np.column_stack([income, height]), rtol=1e-12)


def test_later_files_are_read_in_the_same_way(tmp_path):
    table = imported_columns(tmp_path, european()[0])[0].table
    (tmp_path / "new.csv").write_text("height;income\n1,85;12.345,5\n;7\n")
    np.testing.assert_allclose(read_like(table, tmp_path / "new.csv").reals, [[12345.5, 1.85], [7, np.nan]])
    (tmp_path / "bad.csv").write_text("height;income\n1.85;5\n")
    with pytest.raises(DataError, match=r"row 1 \(line 2\), column 'height': found '1.85'"):
        read_like(table, tmp_path / "bad.csv")


def test_a_cell_in_another_form_makes_no_numbers_of_the_column(tmp_path):
    columns = imported_columns(tmp_path, european(extra="5,0;about 2\n")[0])[1]
    assert columns["income"].kind == "real" and columns["height"].kind != "real"


@pytest.mark.parametrize(
    "text, options, values, words",
    [
        ("a;b\n1,234;1,5\n2,345;2,5\n", {}, [1.234, 2.345], ""),  # the other column says what commas are
        ('a,b\n"1,234","1,234,567"\n"2,345",1\n', {}, [1234, 2345], ""),
        ("a;b\n1,234;x\n2,345;y\n", {}, [1.234, 2.345], "--decimal . --thousands ,"),
        ('a,b\n"1,234",x\n"2,345",y\n', {}, [1234, 2345], "--decimal ,"),
        ('a,b\n"1,234",x\n"2,345",y\n', {"decimal": ","}, [1.234, 2.345], ""),
    ],
)
def test_an_ambiguous_form_is_settled_or_warned_of(tmp_path, text, options, values, words):
    summary, _ = imported_columns(tmp_path, text * 1, kinds={"a": "real"}, keep=["b"], **options)
    assert summary.table.read().reals[:, 0].tolist() == values
    warned = [w for w in summary.warnings if "column 'a'" in w]
    assert (words in warned[0]) if words else not warned, summary.warnings


def test_markers_are_values(tmp_path):
    """-999 is -999.0; 007 is not 7; a marker that no cell has is a warning."""
    x = [f"{v:.1f}" for v in G.standard_normal(60)]
    codes = [f"{i % 20:03d}" for i in range(60)]
    lines = [f"{a},{c}" for a, c in zip(["-999.0", "-999", *x[2:]], codes)]
    summary, columns = imported_columns(tmp_path, "x,code\n" + "\n".join(lines) + "\n", missing=["-999", "7", "gone"])
    assert columns["x"].n_missing == 2 and columns["x"].minimum > -10
    assert columns["code"].n_levels == 20 and columns["code"].n_missing == 0
    assert [w for w in summary.warnings if "no cell has it" in w] == [
        "--missing 7: no cell has it", "--missing gone: no cell has it"
    ]  # fmt: skip
    text = european()[0].replace("income;height\n", "income;height\n-999,00;1,80\n")
    assert imported_columns(tmp_path, text, missing=["-999"])[1]["income"].n_missing == 1


# ------------------------------------------------------------------------------------------------------- in a schema


def test_marks_of_a_schema(tmp_path):
    """A cell 1,234 is no guess where the schema says what the comma is; the options go before it."""
    digits = [100 + i * i % 83 for i in range(100)]
    text = "a;b\n" + "".join(f"1,{d};{d % 3}\n" for d in digits)
    thousand = 1000 + np.mean(digits)
    for words, mean in (('decimal = ","', thousand / 1000), ('thousands = ","', thousand)):
        (tmp_path / "s.toml").write_text(words + "\n")
        summary, columns = imported_columns(tmp_path, text, schema=tmp_path / "s.toml")
        assert columns["a"].mean == pytest.approx(mean) and not summary.warnings
        assert (
            imported_columns(tmp_path, text, schema=tmp_path / "s.toml", decimal=".", thousands=",")[1]["a"].mean > 1000
        )


@pytest.mark.parametrize(
    "text, options, marks",
    [
        (european()[0], {}, ['decimal = ","', 'thousands = "."']),
        (european()[0], {"decimal": ",", "thousands": "."}, ['decimal = ","', 'thousands = "."']),
        ("a\n" + "".join(f"{v:.2f}\n" for v in G.standard_normal(50)), {}, []),
        ("a\n" + "".join(f"{v:.2f}\n" for v in G.standard_normal(50)), {"decimal": "."}, ['decimal = "."']),
        ("a;b\n" + "".join(f"{v:.3f};{v:.2f}".replace(".", ",", 1) + "\n" for v in G.standard_normal(50)), {}, []),
    ],
    ids=["found", "given", "plain", "plain-given", "of-one-column"],
)
def test_marks_are_written_where_they_hold_for_all_columns(tmp_path, text, options, marks):
    first = imported_columns(tmp_path, text, write_schema=tmp_path / "s.toml", **options)[0]
    lines = (tmp_path / "s.toml").read_text().splitlines()
    assert [line for line in lines if line.startswith(("decimal", "thousands"))] == marks
    assert imported_columns(tmp_path, text, schema=tmp_path / "s.toml")[0].table.fingerprint == first.table.fingerprint


def test_wrong_marks_of_a_schema(tmp_path):
    (tmp_path / "s.toml").write_text('decimal = ";"\nthousands = 1\ndates = "american"\n[columns.a]\ncalendar = 1\n')
    with pytest.raises(ConfigError) as error:
        imported_columns(tmp_path, "a\n1,5\n", schema=tmp_path / "s.toml")
    for text in ("decimal: expected one of '.', ','", "thousands: expected a text", "'day-first'", "true or false"):
        assert text in str(error.value)


def test_decimals_are_those_that_all_numbers_have():
    """Trailing zeros count; text that is no number does not, and one whole number leaves none."""
    cases = [(None, ["33.00", "-4.50", "NA", ""], 2, "30.00"), (None, ["33.0", "4.25"], 1, "30.0")]
    cases += [(None, ["33", "4.25"], 0, "30"), (None, ["x"], 0, "30"), (Form(","), ["1,50", "-2,00"], 2, "30,00")]
    cases += [(Form(".", ",", "$"), ["$1,234.50"], 2, "$30.00")]
    for form, texts, n, text in cases:
        assert decimals_of(form, pa.array(texts))[0] == n
        assert (NumbersLike(**vars(form or Form()), decimals=n) if n else form or Form()).written("30") == text
    assert NumbersLike(decimals=2).written("0.125") == "0.125"


def test_rounded_multiples_have_the_decimals_of_the_file():
    """6.6667, twelve steps of Fahrenheit in Celsius, where a file has tenths."""
    assert decimals_of(None, pa.array(["6.7", "12", "x"])) == (0, 1)
    for decimals, text, written in (
        (1, "6.6667", "6.7"), (1, "12", "12.0"), (0, "12.0002", "12"), (0, "-0.04", "0"), (1, "-0.04", "0.0"),
    ):  # fmt: skip
        assert NumbersLike(decimals=decimals, most=1).written(text) == written


def test_drawn_degrees_are_written_with_the_decimals_of_the_file(tmp_path):
    """Whole degrees Fahrenheit in tenths of Celsius: the table's step is 5/9, drawn cells are multiples of it."""
    degrees, others = np.round(np.random.default_rng(1).normal(60.0, 12.0, (2, 2000)))
    tenths, quarters = np.round((degrees - 32.0) / 1.8, 1), others / 4.0
    lines = [f"{a},{b}" for a, b in zip(tenths, quarters)]
    (tmp_path / "t.csv").write_text("\n".join(["celsius,quarters", *lines]) + "\n")
    table = import_table(tmp_path / "t.csv", tmp_path / "t.h5").table
    steps = [c.resolution for c in table.columns]
    forms = opened_like(table, tmp_path / "t.csv").originals().forms
    assert steps == pytest.approx([5 / 9, 0.25], rel=3e-3)
    assert forms["celsius"].written(repr(12 * steps[0])) == "6.7" and forms["celsius"].written("10") == "10.0"
    assert forms["quarters"].written("3.25") == "3.25"
