"""What it costs that members share batch norm statistics: the same members again, each with statistics of its own.

Members of a hypernetwork are trained one at a time, each normalised by its own batches; the running statistics that
they share in evaluation are nobody's.
"""

from __future__ import annotations

import torch

from ..building import ensemble
from ..data import Data
from ..data.ood import ood_sets
from ..ensemble import Ensemble
from ..methods import Deep
from ..metrics.evaluate import measure
from ..training.averaging import refresh_norms
from .measured import COLUMNS, columns_of
from .results import Found, Line, line_over_seeds
from .trained import Trained

__all__ = ["each_with_its_own", "with_own_statistics"]

BATCH = 250


def with_own_statistics(shared: Ensemble, data: Data) -> Ensemble:
    """The members as networks of their own, with the statistics of the training part in every batch norm."""
    networks = [shared.member(i) for i in range(shared.members)]
    states = [network.state_dict() for network in networks]
    found = ensemble(networks[0], Deep(members=shared.members, init="pretrained"), example=data.example())
    found.load_state_dict({name: torch.stack([state[name] for state in states]) for name in states[0]})
    refresh_norms(found, data.prepare(data.train.x).split(BATCH))
    return found.eval()


def each_with_its_own(trained: Trained) -> Found:
    """Every row whose members share norms, measured again."""
    lines: list[Line] = []
    for row in trained.run.rows:
        if row.method.as_dict().get("norm") != "shared" or row.method.name != "hypernet" or row.method.members == 1:
            continue
        results = []
        for seed in trained.seeds(row.label):
            ens, data = trained.open(row.label, seed)
            found = measure(with_own_statistics(ens, data), data, ood=ood_sets(row.ood, data), seed=seed)
            results.append({"numbers": found.numbers})
        for column in columns_of(trained.run) if results else ():
            values = [value for result in results if (value := COLUMNS[column](result)) is not None]
            if not values:  # such as a foreign set of the paper's that the rows do not have
                continue
            lines.append(line_over_seeds(f"{row.label}, own statistics", column, values))
    return Found(lines, {})
