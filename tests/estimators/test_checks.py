"""scikit-learn's own checks of an estimator, on small networks that train for a few epochs."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from multum import EnsembleClassifier, EnsembleRegressor

SMALL: dict[str, Any] = {"members": 2, "network": "mlp:hidden=16", "epochs": 8, "batch_size": 32, "lr": 0.1}

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "rows that are repeated come in other batches, and columns are "
    "standardised without weights; scikit-learn's own networks pass it with the solver lbfgs and not with adam. "
    "tests/training/test_weights.py holds weights to repeated rows in whole batches"
}

# Those that look at what no other test does, and take a moment; the others take half a minute.
FAST = {
    "check_classifiers_classes",
    "check_classifiers_one_label_sample_weights",
    "check_dict_unchanged",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_regressor_multioutput",
    "check_requires_y_none",
    "check_supervised_y_2d",
}


def cases() -> tuple[list[Any], Any]:
    """What scikit-learn tests of both estimators, and how it calls each; slow but for the fast ones."""
    estimators = [
        EnsembleClassifier("deep", random_state=0, **SMALL),
        EnsembleRegressor("deep", random_state=0, **SMALL),
    ]
    mark = parametrize_with_checks(estimators, expected_failed_checks=lambda estimator: EXPECTED).mark
    every = []
    for case in mark.args[1]:
        values, marks = (case.values, [*case.marks]) if hasattr(case, "values") else (case, [])
        check = values[1].func.__name__
        every.append(pytest.param(*values, marks=marks if check in FAST else [*marks, pytest.mark.slow]))
    return every, mark.kwargs["ids"]


CASES, IDS = cases()


@pytest.mark.parametrize(("estimator", "check"), CASES, ids=IDS)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_fast_checks_are_checks_and_one_failure_is_expected() -> None:
    names = [case.values[1].func.__name__ for case in CASES]
    assert {*names} >= FAST | {*EXPECTED} and len(names) > 100
    failing = [case.values[1].func.__name__ for case in CASES if any(mark.name == "xfail" for mark in case.marks)]
    assert failing == [*EXPECTED] * 2
