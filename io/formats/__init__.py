"""Files other than CSV, a format a file: columns as Arrow arrays, some rows at a time (`typed.Typed`)."""
