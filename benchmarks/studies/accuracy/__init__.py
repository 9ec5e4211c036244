"""How accurate products are: what ``accuracy.py`` and the preset of run.py measure.

contenders     what is compared: the library's float32 product and the kernels of each precision
data           the distributions of operands
study          errors against float64, by distribution and K
special        infinities, NaN and the ends of float32's range; exact int32 products
records        the report; table: what is printed of it
lookup         its errors, looked up; figures: its pictures
"""

from .records import COMMAND, AccuracyReport, read_accuracy
from .study import run_accuracy

__all__ = ["COMMAND", "AccuracyReport", "read_accuracy", "run_accuracy"]
