"""``python -m charllm`` is the same program as ``charllm``."""

import sys

from charllm.cli import main

sys.exit(main())
