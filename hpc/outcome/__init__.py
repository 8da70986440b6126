"""An outcome of the rows of a mixture: a regression in each cluster beside global coefficients."""
