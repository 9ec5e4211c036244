"""Tests random changes of models: a converted or fused model must stay equal to torch's with the same changes.

hypothesis prints the shortest failing sequence that it finds. The default number of sequences is enough for
faults that one change shows. FASTGEMM_TEST_SURGERY=10 runs ten times as many.
"""

import os

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import rule
from surgery_machine import Surgery, places, run
from torch import nn

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]  # shrinking takes a while
TIMES = int(os.environ.get("FASTGEMM_TEST_SURGERY", "1"))


def test_surgery():
    run(Surgery, 40 * TIMES)


def test_with_adapters_of_peft_and_hooks_of_accelerate():
    """Includes tools that change models."""
    peft, accelerate = (pytest.importorskip(name) for name in ("peft", "accelerate"))
    adapters = peft.tuners.tuners_utils.BaseTunerLayer
    hooks = accelerate.hooks

    class WithTools(Surgery):
        @rule(place=places, rank=st.integers(1, 3), name=st.sampled_from(("one", "other")))
        def adapt(self, place, rank, name):
            layer = self.name(nn.Linear, place)
            config = peft.LoraConfig(r=rank, target_modules=[layer], init_lora_weights=False)
            if layer is not None:
                self.twins.both(lambda model, _: peft.inject_adapter_in_model(config, model, name))

        @rule(place=places, how=st.sampled_from(("merge", "unmerge")))
        def merge(self, place, how):
            self.change(adapters, place, lambda adapted: getattr(adapted, how)())

        @rule(place=places, enabled=st.booleans())
        def enable(self, place, enabled):
            self.change(adapters, place, lambda adapted: adapted.enable_adapters(enabled))

        @rule(place=places)
        def unload(self, place):
            self.change(adapters, place, lambda adapted: adapted.merge() or adapted.get_base_layer())

        @rule(place=st.just(0) | places)
        def offload(self, place):
            self.change(
                nn.Module, place, lambda part: accelerate.cpu_offload(part, torch.device("cpu")) and None
            )

        @rule(place=places)
        def hook_by_accelerate(self, place):
            hook = hooks.ModelHook()
            self.change(
                nn.Module, place, lambda part: hooks.add_hook_to_module(part, hook, append=True) and None
            )

        @rule(place=st.just(0) | places)
        def unhook(self, place):
            self.change(
                nn.Module, place, lambda part: hooks.remove_hook_from_module(part, recurse=True) and None
            )

    run(WithTools, 12 * TIMES)
