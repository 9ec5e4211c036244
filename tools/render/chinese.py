"""Generated blocks on Chinese pages: cells that are words, and sentences. Code and figures stay as they are."""

# ruff: noqa: E501, RUF001  (Chinese characters are wide, and have punctuation of their own)

from __future__ import annotations

import re

CELLS = {
    "products": "乘法",
    "problems": "问题数",
    "best rate": "最高速度",
    "library": "库",
    "times as fast, geometric mean": "加速比（几何平均）",
    "times as fast": "加速比",
    "least": "最低",
    "level": "级别",
    "kernel": "kernel",
    "role": "角色",
    "needs": "需要",
    "idea": "想法（英文）",
    "of cuBLAS": "相对 cuBLAS",
    "of cuBLAS, NN": "相对 cuBLAS，NN",
    "of FMA peak": "相对 FMA 峰值",
    "over the level below, NN": "相对低一级，NN",
    "fastest": "最快",
    "type": "类型",
    "problem": "问题",
    "asked for": "指定",
    "rate": "速度",
    "SM clock, MHz": "SM 时钟，MHz",
    "power, W": "功率，W",
    "J a product": "每次乘法，J",
    "pJ an operation": "每次运算，pJ",
    "transposed copies": "转置拷贝",
}
# Cells and sentences with figures in them.
CELL_PATTERNS = [
    (r"16 bits, ordinary sizes, in CUDA graphs, on an (.*)", r"16 位，常见尺寸，CUDA graph 中，\1"),
    (r"level (\d)", r"第 \1 级"),
    (r"(b?float\d+), large and aligned", r"\1，大尺寸、对齐"),
    (r"(b?float\d+), odd sizes", r"\1，奇数尺寸"),
    (r"(b?float\d+) models, training", r"\1 模型，训练"),
    (r"(b?float\d+) models, forward pass", r"\1 模型，前向计算"),
    (r"(b?float\d+) models, decoding", r"\1 模型，解码"),
    (r"float32, (\d+) threads of an (.*)", r"float32，\2 的 \1 个线程"),
]
SENTENCES = [
    (
        r"On an (.*), float32 products run at (.*) times\*\* the rate of cuBLAS at no lower accuracy \(geometric "
        r"mean of (\d+) problems from (\d+) to (\d+); least (.*?)\), and a float32 training step of "
        r"\[a transformer\](.*?) runs \*\*(.*?) to (.*?) times\*\* as fast as by torch alone\. Large aligned bfloat16 "
        r"products run at cuBLAS's own rate \((.*?)\); \[models in bfloat16\](.*?) are faster because of "
        r"their other products: Llama (.*?) times in training and (.*?) times in decoding\.",
        r"在 \1 上，float32 矩阵乘法的速度是 cuBLAS 的 \2 倍**，精度不降低（\4 到 \5 的 \3 个问题的几何平均，最低 "
        r"\6）；[一个 transformer]\7 的一步 float32 训练，速度是只用 torch 时的 **\8 到 \9 倍**。对齐的大尺寸 bfloat16 "
        r"乘法与 cuBLAS 持平（\g<10>）；[bfloat16 模型]\g<11>的收益来自其他乘法：Llama 训练 \g<12> 倍，解码 \g<13> 倍。",
    ),
    (
        r"Inside `fastgemm.patch\(\)`, models of the transformers library run (.*?) to (.*?) times as fast as by torch"
        r"\. The largest speedup is (.*?): Llama prefill, (\d+) x (\d+) tokens \((\d+) layers of (\d+)\), (\w+), (.*?) ms by "
        r"torch\.",
        r"在 `fastgemm.patch()` 里，transformers 库的模型的速度是只用 torch 时的 \1 到 \2 倍。最高的 \3 倍是 Llama 的 "
        r"prefill（\6 层，宽 \7，\4 x \5 个 token，\8），只用 torch 时需要 \9 ms。",
    ),
    (
        r"`level=None` against torch; of transposed copies, the better of levels 5 and 6\.",
        "`level=None` 与 torch 相比；转置拷贝取第 5、6 级中较快的一个。",
    ),
    (r" ?On a CPU: ", "CPU 上："),
    (r" ?Ordinary sizes: ", "常见尺寸："),
    (r"A dash means that one run takes more than (\d+) ms\. ", r"横线：运行一次超过 \1 ms。"),
    (
        r"Step (\d+); warm back-to-back calls, (\S+) of them for a problem of size n \(geometric mean of its "
        r"dimensions\), between CUDA events; mean of the second half\. ",
        r"步长 \1；预热之后连续调用，尺寸为 n（各维的几何平均）的问题调用 \2 次，用 CUDA event 计时；取后一半的平均值。",
    ),
    (
        r"Measured on ([^`]*?)(\d+) and (\d+) threads(.*?), by (`[^`]*`)\.",
        r"测量环境：\1\2 或 \3 个线程\4；命令：\5。",
    ),
    (r"Measured on ([^`]*?)(\d+) threads(.*?), by (`[^`]*`)\.", r"测量环境：\1\2 个线程\3；命令：\4。"),
    (r" ?Measured on ([^`]*), by (`[^\n]*`(?: \(commit \w+\))?)\.", r"测量环境：\1；命令：\2。"),
    (
        r"!\[Rates of float32 products, fastgemm and torch, on (.*?)\]",
        r"![float32 乘法的速度，fastgemm 与 torch，\1]",
    ),
    (r"!\[Rates of the levels on (.*?)\]", r"![各级的速度，\1]"),
    (r"!\[Rates against size on (.*?)\]", r"![速度与尺寸的关系，\1]"),
    (r"!\[Sustained rates, power and clocks on (.*?)\]", r"![连续运行时的速度、功率和时钟，\1]"),
]
ENGLISH = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")


def _cell(text: str) -> str:
    if text in CELLS:
        return CELLS[text]
    for pattern, instead in CELL_PATTERNS:
        if found := re.fullmatch(pattern, text):
            return found.expand(instead)
    return text


def _line(text: str) -> str:
    if text.startswith("| "):
        return "| " + " | ".join(map(_cell, text[2:-2].split(" | "))) + " |"
    for pattern, instead in SENTENCES:
        text = re.sub(pattern, instead, text)
    if ENGLISH.search(re.sub(r"`[^`]*`|\(.*?\)", "", text)):
        raise SystemExit(f"tools/render/chinese.py has no Chinese for: {text}")
    return text


def translated(block: str) -> str:
    return "\n".join(map(_line, block.split("\n")))
