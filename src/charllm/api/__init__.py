"""The Python API behind ``import charllm``: the words of the command line as keywords, results as objects."""
