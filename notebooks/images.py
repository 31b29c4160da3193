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
# # Images, from loading to the exported model
#
# Handwritten digits, our own network, and two classes that the ensemble has never seen: does it notice that it does not
# know them? Run this file with `python notebooks/images.py`, or convert it to a notebook with
# `jupytext --to ipynb notebooks/images.py`. It needs the extra `onnx`.

# %%
import numpy
import torch
from torch import nn

import multum
from multum import metrics

data = multum.load_data("digits#hold_out=8+9")
strange = multum.load_data("digits#only=8+9")
print(data.outputs, "classes,", len(data.train), "training and", len(data.test), "test examples of shape", data.shape)


# %% [markdown]
# ## Our own network


# %%
class Net(nn.Module):
    def __init__(self, width: int = 48, classes: int = 8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.stem(x), 2)
        return self.head((x + self.block(x)).mean((2, 3)))


ens = multum.ensemble(Net, multum.Packed(members=4, alpha=2), example=data.example(), seed=0)
one = multum.ensemble(Net, multum.Single(), example=data.example(), seed=0)
for name, each in (("one network", one), ("packed", ens)):
    cost = multum.cost(each, example=data.example())
    print(f"{name}: {cost.params:,} parameters, {cost.macs:,} mult-adds")

# %% [markdown]
# ## Train one network and the ensemble with the same recipe

# %%
recipe = multum.Recipe(epochs=15, lr=0.01)
for name, each in (("one network", one), ("packed", ens)):
    multum.fit(each, data, recipe)
    scores = multum.evaluate(each, data)
    print(name, {metric: round(scores[metric], 4) for metric in ("accuracy", "nll", "ece")})

# %% [markdown]
# ## Classes that it has never seen

# %%
ens.eval()
known = multum.predict(ens, data.prepare(data.test.x))
unknown = multum.predict(ens, data.prepare(strange.test.x))
for score in ("entropy", "mutual_information"):
    print(f"AUROC by {score}: {metrics.auroc(getattr(known, score), getattr(unknown, score)):.3f}")

# %% [markdown]
# ## Export, and compare the answers

# %%
import onnxruntime

multum.export(ens, "digits.onnx")
session = onnxruntime.InferenceSession("digits.onnx")
x = data.prepare(data.test.x[:32])
answers = dict(
    zip(
        [o.name for o in session.get_outputs()],
        session.run(None, {session.get_inputs()[0].name: x.numpy()}),
        strict=True,
    )
)
print(
    "largest difference between probabilities:",
    float(numpy.abs(answers["probs"] - multum.predict(ens, x).probs.numpy()).max()),
)
