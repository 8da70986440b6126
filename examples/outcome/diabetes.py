"""Make a table of patients for `mpibayes import` from UCI's diabetic_data.csv (Strack et al. 2014).

    python examples/outcome/diabetes.py diabetic_data.csv patients.csv

Keeps the first encounter of each patient, since encounters of one patient are not independent, and leaves out those who
died or went to a hospice, who cannot come back. Ages become the middles of their decades, diagnoses (ICD-9) the nine
groups of that paper, a missing race "unknown"; `readmitted` is "yes" where the patient came back at any time. `drugs`
is the number of drugs for diabetes; four of them keep their columns. The input may be packed (.gz, .xz, .zip).
"""

import argparse

import pandas as pd

GONE = {11, 13, 14, 19, 20, 21}  # discharge_disposition_id: died, or to a hospice
DRUGS = slice("metformin", "metformin-pioglitazone")
KEPT = ["metformin", "glipizide", "glyburide", "insulin"]
LEFT_OUT = ["encounter_id", "patient_nbr", "weight", "payer_code", "change", "diabetesMed"]
GROUPS = {  # of the paper's Table 2: ICD-9 codes, both ends included
    "circulatory": [(390, 459), (785, 785)],
    "respiratory": [(460, 519), (786, 786)],
    "digestive": [(520, 579), (787, 787)],
    "diabetes": [(250, 250)],
    "injury": [(800, 999)],
    "musculoskeletal": [(710, 739)],
    "genitourinary": [(580, 629), (788, 788)],
    "neoplasms": [(140, 239)],
}


def group(code: str) -> str | None:
    """Return the group of an ICD-9 code, "other" where none of the eight has it, None for a missing one."""
    if pd.isna(code):
        return None
    if not code[0].isdigit():  # V and E codes
        return "other"
    number = int(float(code))
    return next((name for name, spans in GROUPS.items() if any(a <= number <= b for a, b in spans)), "other")


def patients(table: pd.DataFrame) -> pd.DataFrame:
    table = table.sort_values("encounter_id").drop_duplicates("patient_nbr")
    table = table[~table.discharge_disposition_id.isin(GONE) & table.gender.isin(["Female", "Male"])]
    drugs = table.loc[:, DRUGS]
    made = table.drop(columns=[*LEFT_OUT, *drugs.columns]).join(drugs[KEPT])
    made["race"] = made.race.fillna("unknown")  # a covariate has no missing cells
    made["drugs"] = (drugs != "No").sum(axis=1)
    made["age"] = made.age.str.extract(r"\[(\d+)")[0].astype(int) + 5
    for column in ("diag_1", "diag_2", "diag_3"):
        made[column] = made[column].map(group)
    for column in [c for c in made if c.endswith("_id")]:  # codes, not numbers
        made[column] = "code " + made[column].astype(str)
    made["readmitted"] = made.readmitted.map(lambda when: "no" if when == "NO" else "yes")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="UCI's diabetic_data.csv")
    parser.add_argument("target", help="the CSV file that is made")
    asked = parser.parse_args()
    codes = dict.fromkeys(("diag_1", "diag_2", "diag_3", "payer_code"), str)
    made = patients(pd.read_csv(asked.source, na_values="?", keep_default_na=False, dtype=codes))
    made.to_csv(asked.target, index=False)
    back = (made.readmitted == "yes").mean()
    print(f"{asked.target}: {len(made):,} patients, {len(made.columns)} columns, {back:.1%} came back")


if __name__ == "__main__":
    main()
