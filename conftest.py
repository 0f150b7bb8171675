"""Chapters and tests run on one thread each.

The sum of many numbers depends on how many threads add them, and training makes a visible
difference of that; two processes on two cores are faster besides.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
