"""The reference trainer: compact, readable PyTorch for the catalog's models, on one GPU or on many."""
