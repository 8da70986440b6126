"""The hint of an encoding names the one that makes sense of the bytes."""

import pytest

from mpibayes.errors import DataError
from mpibayes.io.encodings import likely, unmarked
from mpibayes.io.ingest import import_table

TEXTS = {
    "German": ("Name;Stadt\nJürgen Müller;Köln\nGroße Straße;Düsseldorf\n", ["cp1252", "mac_roman", "cp850"]),
    "two words": ("city\nKöln\nMünchen\n", ["cp1252", "mac_roman", "cp850"]),
    "one word": ("a,b\n1,café\n", ["cp1252", "mac_roman", "cp850"]),
    "French": ("prénom,ville\nÉlodie,Orléans\nça va,où\nà côté,élève\nl’été,cœur\n", ["cp1252", "mac_roman"]),
    "Spanish": ("año,niño\n¿qué?,señor\n", ["cp1252", "mac_roman", "cp850"]),
    "euros": ("Preis €;x\n5 €;1\n", ["cp1252"]),
    "pounds": ("£5,x\n£6,y\n", ["cp1252"]),
    "quotes": ("it’s,“x”\nok,no\n", ["cp1252"]),
    "Swedish": ("Göteborg,Malmö\nÅre,Åsa\n", ["cp1252", "mac_roman"]),
    "Polish": ("Łódź,żółty\nświęto,gęś\n", ["cp1250"]),
    "Russian": ("имя,город\nИван,Москва\nПривет,мир\n", ["cp1251", "koi8_r"]),
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_encoding_that_makes_sense(language):
    text, encodings = TEXTS[language]
    assert [likely(text.encode(encoding)) for encoding in encodings] == encodings
    for wide in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        assert unmarked(text.encode(wide)) == wide
    assert not unmarked(text.encode()) and not unmarked(b"a\0\0b,c\n1\0,2\n" * 5)


@pytest.mark.parametrize("encoding", ["mac_roman", "cp1252", "utf-16-le", "utf-16-be"])
def test_the_hint_reads_the_file(tmp_path, encoding):
    """The file can be imported with the encoding that the message names."""
    text = "Straße;Preis €\n" + "".join(f"{'Köln' if i % 3 else 'Zürich'};{i / 4}\n" for i in range(40))
    path = tmp_path / "d.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match=f"say --encoding {encoding}"):
        import_table(path, tmp_path / "t.h5")
    table = import_table(path, tmp_path / "t.h5", encoding=encoding).table
    assert [c.name for c in table.columns] == ["Straße", "Preis €"] and table.columns[0].levels == ("Köln", "Zürich")


def test_other_encodings_than_the_one_that_was_given(tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes("a;b\nKöln;1\nBrünn;2\n".encode("mac_roman") + b"\x81berall;2\n")
    with pytest.raises(DataError, match="not CP1252: byte 0x81 on line 4"):
        import_table(path, tmp_path / "t.h5", encoding="cp1252")
