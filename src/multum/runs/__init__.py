"""What lives on disk: run folders and their cells, where cells run, and train, evaluate and predict on a folder."""
