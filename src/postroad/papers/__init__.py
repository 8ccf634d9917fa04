"""One module per paper: its published numbers as data, and the experiments that redo them."""
