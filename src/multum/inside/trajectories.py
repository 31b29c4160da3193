"""How members move through function space: their predictions on fixed examples, epoch after epoch, as paths in a plane.

MIMO (Figure 4, after Fort et al. 2019) saves the predictions on the test set now and then, and projects all of them
together by t-SNE. Members that end in different optima end in different places.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..outputs.prediction import Prediction, predict

if TYPE_CHECKING:
    import pandas as pd


PROJECTIONS = ("tsne", "pca")
COMPONENTS = 50  # t-SNE works on as many principal components, as its authors do


@dataclass(frozen=True, eq=False)
class Paths:
    """Where each member was after each recorded epoch.

    **Shape**: member, epoch, x and y ``[records]``, in the order of recording.
    """

    member: np.ndarray
    epoch: np.ndarray
    x: np.ndarray
    y: np.ndarray
    projection: str
    explained: tuple[float, float] | None  # pca: the shares of the variance that x and y show

    def frame(self) -> pd.DataFrame:
        """One row per record: member, epoch, x, y."""
        import pandas as pd

        return pd.DataFrame({"member": self.member, "epoch": self.epoch, "x": self.x, "y": self.y})


class Trajectories:
    """Records members' predictions on fixed examples, and projects all records together.

    **Shape**: x ``[examples, ...]``, inputs as the network takes them; a record is each member's probabilities, or
    its means for regression. Members may be born between two records.

    >>> import multum, torch
    >>> net = multum.models.build("mlp", in_features=2, classes=2)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 2), seed=0)
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> recorder = Trajectories(x)
    >>> for epoch in range(3):
    ...     recorder.record(ens, epoch)
    ...     history = multum.fit(ens, (x, (x[:, 0] > 0).long()), multum.Recipe(epochs=1, seed=epoch))
    >>> recorder.project("pca").frame().shape
    (6, 4)
    """

    def __init__(self, x: Tensor, *, batch_size: int = 512):
        if len(x) == 0:
            raise ConfigError("trajectories need examples to be recorded on; got none in x")
        self.x, self.batch_size = x, batch_size
        self._members: list[int] = []
        self._epochs: list[float] = []
        self._records: list[np.ndarray] = []

    @classmethod
    def from_states(
        cls, ensemble: Ensemble, states: Mapping[float, Mapping[str, Tensor]], x: Tensor, *, batch_size: int = 512
    ) -> Trajectories:
        """Records of saved states by epoch, as `ensemble.state_dict()` gives them; the ensemble is left alone."""
        trajectories, trial = cls(x, batch_size=batch_size), copy.deepcopy(ensemble)
        for epoch, state in states.items():
            try:
                trial.load_state_dict(dict(state))
            except RuntimeError as error:
                raise ConfigError(
                    f"states must be those of this ensemble, with {ensemble.members} members; got another for epoch "
                    f"{epoch}: {str(error).splitlines()[-1].strip()}"
                ) from error
            trajectories.record(trial, epoch)
        return trajectories

    def __len__(self) -> int:
        return len(self._records)

    def record(self, ensemble: Ensemble, epoch: float) -> None:
        """Note what every member predicts now."""
        prediction = predict(ensemble, self.x.to(ensemble.device), batch_size=self.batch_size)
        rows = prediction.members if isinstance(prediction, Prediction) else prediction.members.select(2, 0)
        rows = rows.flatten(1).float().cpu()
        bad = ~rows.isfinite().all(1)
        if bad.any():
            raise ConfigError(
                f"recorded predictions must be finite; got others from member {int(bad.nonzero()[0])} in epoch {epoch}"
            )
        self._members += range(len(rows))
        self._epochs += [epoch] * len(rows)
        self._records += list(rows.numpy())

    def project(self, projection: str = "tsne", *, perplexity: float | None = None, seed: int = 0) -> Paths:
        """All records in one plane: by t-SNE, which keeps neighbours, or by PCA, which keeps distances.

        Args:
            perplexity: of t-SNE: about how many neighbours a record has; by default 30, or a third of the records.
        """
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE

        check_known(projection, PROJECTIONS, f"projection must be {' or '.join(PROJECTIONS)}")
        if len(self) < 4:
            raise ConfigError(f"a projection needs at least 4 records; got {len(self)}. Record more epochs")
        if perplexity is not None and not 0 < perplexity < len(self):
            raise ConfigError(
                f"perplexity must be above 0 and below the {len(self)} records; got perplexity={perplexity}"
            )
        rows = np.stack(self._records).astype(np.float64)
        if np.ptp(rows, axis=0).max() == 0:
            raise ConfigError("records must differ; got equal ones only. Train between two records")
        components = 2 if projection == "pca" else min(COMPONENTS, *rows.shape)
        reducer = PCA(min(components, *rows.shape), svd_solver="full")
        places, explained = reducer.fit_transform(rows), None
        if projection == "tsne":
            neighbours = perplexity if perplexity is not None else min(30.0, (len(self) - 1) / 3)
            init = places[:, :2] / max(places[:, 0].std(), 1e-12) * 1e-4  # PCA's own, as scikit-learn scales it
            init = np.pad(init, ((0, 0), (0, 2 - init.shape[1])))
            places = TSNE(perplexity=neighbours, init=init, random_state=seed).fit_transform(places)
        else:
            places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
            shares = [*map(float, reducer.explained_variance_ratio_), 0.0]
            explained = (shares[0], shares[1])
        return Paths(np.array(self._members), np.array(self._epochs), places[:, 0], places[:, 1], projection, explained)
