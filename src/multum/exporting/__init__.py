"""A trained ensemble as one file that runs without multum: ONNX or torch.export, with what a prediction means inside.

    raw examples -> preparation -> members -> temperature -> probs, labels, uncertainties, sets, abstention

graph.py        the whole way from raw examples to answers as one module, by the functions that `multum.predict` uses
members.py      the members as plain networks; what several compute alike is computed once (program.py)
program.py      the module as a torch.export program
onnx_file.py    the program as an ONNX file; columns.py: the text columns of a table, which torch has no tensors for
torch_file.py   the program as torch.export saves it
parity.py       the file is run, and must say what multum says
export.py       `multum.export`
card.py         the model card of a run; hub.py: card and model as a repository of the Hugging Face hub
predicting.py   `multum predict` with a run, a saved model or an exported file
"""
