"""Coefficients of one draw: likelihoods and expectations of outcomes in its clusters and in a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.law import Law, of_numbers


@dataclass(frozen=True)
class State:
    """Coefficients theta (K, C p) of the clusters and global beta (C D,), and the law with its learned parameters."""

    law: Law
    theta: np.ndarray
    beta: np.ndarray

    @classmethod
    def of(cls, law: Law, arrays: Mapping[str, np.ndarray], n_clusters: int) -> State:
        """Read the arrays of a kept draw, whose coefficients are padded with zeros."""
        theta = np.asarray(arrays["theta"], np.float64).reshape(-1, law.p)[:n_clusters]
        return cls(
            of_numbers(law, arrays["law"]), theta, np.asarray(arrays["beta"], np.float64)[: len(law.covariate_sd)]
        )

    def eta(self, answers: Answers) -> np.ndarray:
        """Return the linear predictor of each row in each cluster, (n, K), or (n, K, C) of a softmax."""
        law, u, w = self.law, answers.u.astype(np.float64), answers.w.astype(np.float64)

        def of(c: int) -> np.ndarray:
            own = law.own(self.theta, c)
            return own[:, 0] + u @ own[:, 1:].T + (w @ law.shared(self.beta, c))[:, None]

        return law.by_eta(of)

    def eta_of(self, answers: Answers, z: np.ndarray) -> np.ndarray:
        """Return the linear predictor of each row in its cluster z (n,), (n,), or (n, C) of a softmax."""
        law, v = self.law, np.column_stack([np.ones(len(z)), answers.u])
        return law.by_eta(lambda c: (v * law.own(self.theta, c)[z]).sum(axis=1) + answers.w @ law.shared(self.beta, c))

    def log_likelihoods(self, answers: Answers) -> np.ndarray:
        """Return log L of each row in each cluster and, last, a new one, (n, K + 1); 0 where the outcome is missing."""
        out = np.zeros((len(answers.y), len(self.theta) + 1))
        known = np.flatnonzero(~np.isnan(answers.y))
        of = answers.take(known)
        out[known, :-1] = self._log_density(self.eta(of), of.seen[:, None])
        out[known, -1] = self.law.given.log_averages(of.seen, *self._of_new(of), self.law.nu, self.law.scale)
        return out

    def log_density(self, terms: np.ndarray, answers: Answers) -> np.ndarray:
        """Return the log density of each row's cells and outcome, (n,). terms (n, K + 1): log p(x, k) of the cells,
        overwritten."""
        terms += self.log_likelihoods(answers)
        return np.logaddexp.reduce(terms, axis=1)

    def expectations(self, answers: Answers) -> np.ndarray:
        """Return the outcome's mean, or probability of the second class, by cluster and in a new one, (n, K + 1); of a
        softmax the probabilities of all levels, (n, K + 1, levels), of times those of surviving `Baseline.ends`."""
        new = self.law.given.average_expectations(*self._of_new(answers))
        return np.concatenate([self.law.given.expectation(self.eta(answers)), new[:, None]], axis=1)

    def _log_density(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.law.given.log_density(eta, y, self.law.nu, self.law.scale)

    def _of_new(self, answers: Answers) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and standard deviation of eta in a new cluster, (n,) each, or (n, C) of a softmax."""
        law, w = self.law, answers.w.astype(np.float64)
        v = np.column_stack([np.ones(len(answers.y)), answers.u.astype(np.float64)])
        at = law.by_eta(lambda c: v @ law.own(law.mean, c) + w @ law.shared(self.beta, c))
        return at, law.by_eta(lambda c: np.sqrt(v**2 @ law.own(law.sd, c) ** 2))
