"""The accuracy of products, as ``accuracy.py`` and the preset of run.py measure it.

contenders     the contenders: the library's float32 product and the kernels of each precision
data           the distributions of operands
study          errors against float64, by distribution and K
special        infinities, NaN and the ends of float32's range; exact int32 products
records        the report; table: its printed tables
lookup         finds errors in the report; figures: its pictures
"""

from .records import COMMAND, AccuracyReport, read_accuracy
from .study import run_accuracy

__all__ = ["COMMAND", "AccuracyReport", "read_accuracy", "run_accuracy"]
