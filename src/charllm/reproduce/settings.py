"""What a reproduction is asked for, as far as `--help` names it."""

NAME = "charllm-ppt"
PUBLICATIONS = (NAME,)
WORKERS = 2
