"""What README.md and docs/ show of reports, in Markdown: tools/render_results.py puts it there.

markdown      a table, where a report comes from, and the tables of ``fastgemm ladder`` and ``fastgemm bench``
gpu           what gpu_presets measured; tensor_cores, weak_spots: those presets
accuracy      the study of errors
explain       counters of kernels, side by side
models, transformer, scale    examples/models.py, examples/transformer.py and examples/tensor_parallel.py
"""
