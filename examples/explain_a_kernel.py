"""Why level 3 of the transpose is faster than level 2, by counting, without a GPU.

python examples/explain_a_kernel.py
"""

import fastgemm

for level in (2, 3):
    report = fastgemm.explain("transpose", level=level, shape=(256, 256))
    print(f"level {level}, {report.kernel}: {report.idea}")
    for site in report.sites:
        if site.space == "shared":
            print(
                f"  {site.what}, line {site.line}: {site.conflict:.0f} passes over the banks for each one needed"
            )
