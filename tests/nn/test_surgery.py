"""Surgery on models in any order: a converted or fused model stays equal to torch's that was changed alike.

A failing sequence is printed as short as hypothesis finds one. The tools that change models, too, cost more
than all else, so that fewer sequences have them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ranks import LOOPBACK
from surgery_machine import Surgery, places, run
from torch import Tensor, nn

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]  # shrinking takes a while


# Each is a part, for processes that share the tests.
@pytest.mark.parametrize("part", range(4))
def test_surgery(part):
    run(Surgery, 60)


def test_a_seed_repeats_the_sequences():
    def drawn(seed):
        numbers = []

        class Machine(RuleBasedStateMachine):
            @rule(number=st.integers())
            def draw(self, number):
                numbers.append(number)

        torch.manual_seed(seed)
        run(Machine, 5)
        return numbers

    assert drawn(1) == drawn(1) != drawn(2)


def test_with_adapters_of_peft():
    peft = pytest.importorskip("peft")
    from peft.tuners.tuners_utils import BaseTunerLayer

    class Adapted(Surgery):
        @rule(place=places, rank=st.integers(1, 3), name=st.sampled_from(("one", "other")))
        def adapt(self, place, rank, name):
            layer = self.name(nn.Linear, place)
            config = peft.LoraConfig(r=rank, target_modules=[layer], init_lora_weights=False)
            if layer is not None:
                self.twins.both(lambda model, _: peft.inject_adapter_in_model(config, model, name))

        @rule(place=places, how=st.sampled_from(("merge", "unmerge")))
        def merge(self, place, how):
            self.change(BaseTunerLayer, place, lambda adapted: getattr(adapted, how)())

        @rule(place=places, enabled=st.booleans())
        def enable(self, place, enabled):
            self.change(BaseTunerLayer, place, lambda adapted: adapted.enable_adapters(enabled))

        @rule(place=places)
        def unload(self, place):
            self.change(BaseTunerLayer, place, lambda adapted: adapted.merge() or adapted.get_base_layer())

    run(Adapted, 20)


def test_with_hooks_of_accelerate():
    accelerate = pytest.importorskip("accelerate")
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

    class Offloaded(Surgery):
        @rule(place=st.just(0) | places)
        def offload(self, place):
            self.change(
                nn.Module, place, lambda part: accelerate.cpu_offload(part, torch.device("cpu")) and None
            )

        @rule(place=places)
        def hook_by_accelerate(self, place):
            self.change(
                nn.Module, place, lambda part: add_hook_to_module(part, ModelHook(), append=True) and None
            )

        @rule(place=st.just(0) | places)
        def unhook(self, place):
            self.change(nn.Module, place, lambda part: remove_hook_from_module(part, recurse=True) and None)

    run(Offloaded, 20)


@pytest.fixture
def one_rank(monkeypatch):
    dist = torch.distributed
    if not dist.is_available() or dist.is_initialized():
        pytest.skip("needs a process group of its own")
    if LOOPBACK:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_fully_sharded(one_rank):
    from torch.distributed.fsdp import fully_shard

    class Sharded(Surgery):
        """With no other changes of modules afterwards: torch crashes where they reach memory that it has freed."""

        sharded = False
        load_the_others_state_dict = to = tie_weights = None  # no rules

        @rule(place=st.just(0) | places)
        def shard(self, place):
            super().change(nn.Module, place, lambda part: fully_shard(part) and None)
            self.sharded = True

        def change(self, *how):
            if not self.sharded:
                super().change(*how)

    run(Sharded, 14)


def test_compiled():
    class Compiled(Surgery):
        """What was compiled is called again after other changes, but for hooks, of which torch takes no notice."""

        compiled: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]]
        hook = hook_a_parameter = remove_a_hook = hook_all_modules = None  # no rules

        @rule(backend=st.sampled_from(("eager", "aot_eager")))
        def compile(self, backend):
            torch.compiler.reset()
            self.compiled = {
                side: (model, torch.compile(model, backend=backend)) for side, model in self.twins.sides()
            }

        @precondition(lambda self: hasattr(self, "compiled"))
        @invariant()
        def call(self):
            if all(self.compiled[side][0] is model for side, model in self.twins.sides()):
                self.twins.check_calls(self.inputs, lambda _, side: self.compiled[side][1], compiled=True)

        @rule(place=places)
        def compile_a_part(self, place):
            torch.compiler.reset()
            self.change(nn.Module, place, lambda part: part.compile(backend="eager"))

    run(Compiled, 6)
