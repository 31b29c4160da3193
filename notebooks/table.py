# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A table, from loading to the exported model
#
# Which cells are malignant? We have 569 rows of measurements, and want calibrated probabilities, an ensemble that
# abstains when it is uncertain, and one file that runs without PyTorch. Run this file with `python notebooks/table.py`,
# or convert it to a notebook with `jupytext --to ipynb notebooks/table.py`. It needs the extra `onnx`.

# %%
import csv

import numpy
import pandas
from sklearn.datasets import load_breast_cancer

import multum

cells = load_breast_cancer(as_frame=True)
table = cells.data.assign(diagnosis=cells.target.map({0: "malignant", 1: "benign"}))
table = table.sample(frac=1, random_state=0)
table[:469].to_csv("cells.csv", index=False)
table[469:].to_csv("later.csv", index=False)
print(table.shape, dict(table.diagnosis.value_counts()))

# %% [markdown]
# ## Which method?
#
# A quick comparison: three methods, two seeds, no tuning. For a result you can rely on, leave `seeds`, `tune` and
# `epochs` at their defaults.

# %%
document = multum.compare(
    "csv:cells.csv#target=diagnosis",
    methods="single,packed,deep",
    out="runs/compare",
    ood=[],
    seeds=2,
    tune=0,
    epochs=15,
    shift="none",
)
print(document["advice"]["sentence"])

# %% [markdown]
# ## Train and calibrate
#
# The scikit-learn estimator scales numbers, holds out examples, and fits a temperature on them.

# %%
columns = [name for name in table.columns if name != "diagnosis"]
known, later = table[:469], table[469:]
model = multum.EnsembleClassifier(method="packed", members=4, epochs=30, random_state=0).fit(
    known[columns], known.diagnosis
)
print(f"accuracy on 100 later rows: {model.score(later[columns], later.diagnosis):.3f}, T = {model.temperature_:.2f}")

# %% [markdown]
# ## How good is the uncertainty?
#
# The more confident half of the predictions should contain fewer errors than the other half, and prediction sets with a
# target of 90 % should contain the true class in about 90 % of cases.

# %%
probs = model.predict_proba(later[columns])
wrong = model.predict(later[columns]) != later.diagnosis.to_numpy()
order = numpy.argsort(-probs.max(1))
print(f"error rate: {wrong[order[:50]].mean():.2f} in the confident half, {wrong[order[50:]].mean():.2f} in the other")
sets = model.predict_set(later[columns], coverage=0.9)
truth = numpy.searchsorted(model.classes_, later.diagnosis)
print(f"coverage of the sets: {sets[numpy.arange(100), truth].mean():.2f}, mean size {sets.sum(1).mean():.2f}")
print(pandas.DataFrame(model.uncertainty(later[columns][:3])._asdict()).round(4))

# %% [markdown]
# ## Export
#
# A run folder (here from Python; on the command line `multum train`) is exported together with its preprocessing, so that
# the exported file takes the columns of the csv as they are.

# %%
from multum.runs.train import train

train("csv:cells.csv#target=diagnosis", None, "packed", "runs/cells", {"epochs": 30}, temperature=True)
print(multum.export("runs/cells", "cells.onnx")["parity"])

# %%
import onnxruntime

session = onnxruntime.InferenceSession("cells.onnx")
with open("later.csv", newline="") as file:
    rows = list(csv.DictReader(file))
inputs = {column.name: numpy.array([float(row[column.name]) for row in rows]) for column in session.get_inputs()}
names = [output.name for output in session.get_outputs()]
answers = dict(zip(names, session.run(names, inputs), strict=True))
answered = ~answers["abstain"]
classes = multum.exporting.describing.metadata("cells.onnx")["classes"]
right = numpy.array([classes[label] == row["diagnosis"] for label, row in zip(answers["labels"], rows, strict=True)])
print(f"answers {answered.mean():.0%} of the rows, with an accuracy of {right[answered].mean():.3f}")
