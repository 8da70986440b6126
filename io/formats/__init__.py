"""Files other than CSV, one module per format: columns as Arrow arrays, some rows at a time (`typed.Typed`)."""
