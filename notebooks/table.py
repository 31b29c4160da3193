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
# Which cells are malignant? 569 rows of measurements. We want probabilities that hold, an answer "I do not know", and
# one file that runs without Python's training stack. `jupytext --to ipynb notebooks/table.py` makes a notebook of this
# file; `python notebooks/table.py` runs it.

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
# A short comparison: three methods, two seeds, no tuning. For an answer you would act on leave `seeds`, `tune` and
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
print(document["advice"])

# %% [markdown]
# ## Train one, and calibrate it
#
# Estimators scale numbers, hold out a part, and fit a temperature on it.

# %%
columns = [name for name in table.columns if name != "diagnosis"]
known, later = table[:469], table[469:]
model = multum.EnsembleClassifier(method="packed", members=4, epochs=30, random_state=0).fit(
    known[columns], known.diagnosis
)
print(f"accuracy on 100 later rows: {model.score(later[columns], later.diagnosis):.3f}, T = {model.temperature_:.2f}")

# %% [markdown]
# ## What is its uncertainty worth?
#
# The surer half should be wrong less often than the rest, and 90 % sets should hold the truth in about 90 % of cases.

# %%
probs = model.predict_proba(later[columns])
wrong = model.predict(later[columns]) != later.diagnosis.to_numpy()
order = numpy.argsort(-probs.max(1))
print(f"wrong: {wrong[order[:50]].mean():.2f} of the surer half, {wrong[order[50:]].mean():.2f} of the other")
sets = model.predict_set(later[columns], coverage=0.9)
truth = numpy.searchsorted(model.classes_, later.diagnosis)
print(f"sets hold the truth in {sets[numpy.arange(100), truth].mean():.2f}, mean size {sets.sum(1).mean():.2f}")
print(pandas.DataFrame(model.uncertainty(later[columns][:3])._asdict()).round(4))

# %% [markdown]
# ## One file
#
# A run folder exports with its preparation: columns of the csv go in as they are.

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
print(f"answers {answered.mean():.2f} of the rows, right on {right[answered].mean():.3f} of these")
