"""``python -m charllm`` is the same program as ``charllm``."""

import sys

try:
    from charllm.cli import main

    code = main()
except KeyboardInterrupt:
    # While Python still reads the program, before it can say so itself.
    print("charllm: interrupted", file=sys.stderr)
    code = 130
sys.exit(code)
