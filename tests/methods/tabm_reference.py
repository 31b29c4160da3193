"""Write tabm_reference.json: weights, inputs, layers, outputs and gradients of small models of the package `tabm`.

    python tests/methods/tabm_reference.py        where tabm and rtdl_num_embeddings are installed

tests/methods/test_tabm.py holds multum.TabM to these numbers wherever it runs. All are in float64; gradients are those
of the sum of outputs * weights_of_outputs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_suffix(".json")
CASES: dict[str, dict[str, Any]] = {
    "full": {"arch_type": "tabm", "start_scaling_init": "random-signs"},
    "mini": {"arch_type": "tabm-mini", "start_scaling_init": "normal"},
    "full, embedded": {"arch_type": "tabm", "start_scaling_init": "normal", "embedded": True},
    "mini, embedded": {"arch_type": "tabm-mini", "start_scaling_init": "random-signs", "embedded": True},
}
MEMBERS, INPUTS, WIDTH, OUTPUTS, ROWS, EMBEDDING = 3, 2, 4, 2, 5, 3
EDGES = [[-2.0, -0.5, 0.5, 2.0], [-2.0, -1.0, 1.0, 2.0]]


def made(arch_type: str, start_scaling_init: str, embedded: bool = False) -> dict[str, Any]:
    import rtdl_num_embeddings
    import tabm
    import torch

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    bins = [torch.tensor(edges) for edges in EDGES]
    kind = rtdl_num_embeddings.PiecewiseLinearEmbeddings
    embedding = kind(bins, EMBEDDING, activation=False, version="B") if embedded else None
    model = tabm.TabM.make(
        n_num_features=INPUTS,
        d_out=OUTPUTS,
        num_embeddings=embedding,
        n_blocks=2,
        d_block=WIDTH,
        k=MEMBERS,
        arch_type=arch_type,
        start_scaling_init=start_scaling_init,
    ).eval()
    with torch.no_grad():  # factors of one, and embeddings of zero, would hide which is which
        for name, p in model.named_parameters():
            if name.endswith((".s", ".r", "linear.weight")):
                p.add_(0.3 * torch.randn_like(p))
    layers: list[Any] = []
    for block in model.backbone.blocks:
        block.register_forward_hook(lambda module, inputs, output: layers.append(output.detach()))
    x = 1.9 * (2 * torch.rand(ROWS, INPUTS) - 1)
    outputs = model(x)
    weights = torch.randn_like(outputs)
    (outputs * weights).sum().backward()
    tensors = {"x": x, "outputs": outputs, "weights_of_outputs": weights}
    return {
        **{name: t.tolist() for name, t in tensors.items()},
        "layers": [t.tolist() for t in layers],
        "state": {name: t.tolist() for name, t in model.state_dict().items()},
        "gradients": {name: p.grad.tolist() for name, p in model.named_parameters()},
    }


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    path.write_text(json.dumps({name: made(**case) for name, case in CASES.items()}) + "\n")
