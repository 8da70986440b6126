"""Component likelihoods with their conjugate priors, one file per kind; `kinds.py` lists them.

Each kind handles all its columns and all clusters at once, on arrays laid out [column or level row][cluster].
"""
