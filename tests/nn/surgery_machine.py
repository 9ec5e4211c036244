"""The changes that hypothesis makes to both twins, and those of fastgemm.nn to one of them."""

from collections.abc import Callable

import fastgemm
import torch
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from surgery_changes import CHANGES_OF_LAYERS, CHANGES_OF_SEQUENTIALS, COPIES, FORWARDS, HOOKS
from surgery_models import build, plans
from surgery_twins import Hook, Twins
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

places = st.integers(0, 20)  # an index into the modules that fit a rule, modulo their number
choices = st.one_of(
    st.fixed_dictionaries({"level": st.sampled_from((None, None, 1, 2, 3, 4, 5, 6, 7))}),
    st.fixed_dictionaries({"kernel": st.sampled_from(("naive", "packed", "invariant", "torch"))}),
    st.just({"precision": "ieee"}),
    st.just({"invariant": True}),
)


class Surgery(RuleBasedStateMachine):
    @initialize(
        plan=plans,
        width=st.integers(1, 24),
        shape=st.sampled_from(((3,), (2, 3), (1,))),
        seed=st.integers(0, 2**16),
        start=st.sampled_from((None, fastgemm.nn.convert, fastgemm.nn.fuse)),
    )
    def begin(self, plan, width, shape, seed, start):
        self.twins = Twins(lambda: build(plan, width).double(), seed)
        self.handles = {"torchs": [], "own": []}
        self.inputs = self.twins.seeded(lambda: torch.randn(*shape, width, dtype=torch.float64))
        self.uncalled = any(
            isinstance(m, nn.modules.lazy.LazyModuleMixin) for m in self.twins.torchs.modules()
        )
        if start:
            start(self.twins.own)

    @invariant()
    def equal(self):
        if self.uncalled:
            self.uncalled = False  # changes of layers before their first call
        else:
            self.twins.check(self.inputs)

    def name(self, kind: type | tuple[type, ...], place: int) -> str | None:
        """The name of a module of this kind in torch's model; None if there is none."""
        found = [name for name, m in self.twins.torchs.named_modules() if isinstance(m, kind)]
        return found[place % len(found)] if found else None

    def change(
        self, kind: type | tuple[type, ...], place: int, function: Callable[[nn.Module], nn.Module | None]
    ) -> None:
        """Changes a module in both models, in place or by replacement with the function's result."""
        name = self.name(kind, place)
        if name is None or len(list(self.twins.torchs.modules())) > 60:
            return

        def replaced(model: nn.Module) -> nn.Module:
            new = function(model.get_submodule(name))
            if new is None:
                return model
            if name == "":
                return new
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, new)
            return model

        self.twins.replaced_by(replaced)

    def of_own(self, place: int) -> nn.Module:
        return self.twins.own.get_submodule(self.name(nn.Module, place))

    @rule(place=st.just(0) | places, options=choices, every=st.sampled_from((1, 1, 2)))
    def convert(self, place, options, every):
        seen = []
        part = self.of_own(place)
        fastgemm.nn.convert(
            part, only=lambda name, layer: seen.append(name) or len(seen) % every == 0, **options
        )
        if every == 1:
            assert not any(type(m) is nn.Linear and "forward" not in vars(m) for m in part.modules())

    @rule(
        place=st.just(0) | places,
        options=st.just({}) | choices.filter(lambda options: "invariant" not in options),
    )
    def fuse(self, place, options):
        fastgemm.nn.fuse(self.of_own(place), **options)

    @rule(place=st.just(0) | places)
    def revert(self, place):
        fastgemm.nn.revert(self.of_own(place))

    def teardown(self):
        """revert restores torch's classes, except if another class was derived from a converted layer's class."""
        fastgemm.nn.revert(self.twins.own)
        for (name, one), other in zip(
            self.twins.torchs.named_modules(), self.twins.own.modules(), strict=True
        ):
            made = type(one).__module__.startswith("torch.nn.utils")
            if not made and "forward" not in vars(other):
                assert type(one) is type(other), name
                assert set(vars(one)) - {"forward"} == set(vars(other)), name

    @rule(place=places, i=places, j=places, how=st.sampled_from(tuple(CHANGES_OF_SEQUENTIALS)))
    def change_a_sequential(self, place, i, j, how):
        change = CHANGES_OF_SEQUENTIALS[how]
        self.change(nn.Sequential, place, lambda s: change(s, i % len(s), j % len(s)) if len(s) else None)

    @rule(place=places, how=st.sampled_from(tuple(CHANGES_OF_LAYERS)))
    def change_a_layer(self, place, how):
        self.change(nn.Linear, place, lambda layer: (CHANGES_OF_LAYERS[how](layer), None)[1])

    @rule(place=places, bound=st.booleans())
    def bind_a_forward(self, place, bound):
        self.change(nn.Linear, place, FORWARDS[bound])

    @rule(place=st.just(0) | places, how=st.sampled_from(tuple(COPIES)))
    def copy(self, place, how):
        self.change(nn.Module, place, COPIES[how])

    @rule(place=places, kind=st.sampled_from(tuple(HOOKS)), scale=st.sampled_from((None, None, 0.5)))
    def hook(self, place, kind, scale):
        name = self.name(nn.Module, place)

        def register(model: nn.Module, side: str) -> None:
            hook = Hook(side, f"{kind} {len(self.handles[side])}", scale)
            self.handles[side].append(HOOKS[kind](model.get_submodule(name), hook))

        self.twins.both(register)

    @rule(place=places)
    def hook_a_parameter(self, place):
        names = [name for name, _ in self.twins.torchs.named_parameters()]

        def register(model: nn.Module, side: str) -> None:
            if names:
                hook = Hook(side, f"gradient {len(self.handles[side])}", 0.5)
                parameter = model.get_parameter(names[place % len(names)])
                self.handles[side].append(parameter.register_hook(lambda gradient: hook(None, gradient)))

        self.twins.both(register)

    @rule(place=places)
    def remove_a_hook(self, place):
        self.twins.both(lambda _, side: [h.remove() for h in self.handles[side][place : place + 1]])

    @rule(place=st.just(0) | places, training=st.booleans())
    def train(self, place, training):
        self.change(nn.Module, place, lambda module: module.train(training) and None)

    @rule(one=places, other=places)
    def tie_weights(self, one, other):
        names = self.name(nn.Linear, one), self.name(nn.Linear, other)

        def tie(model: nn.Module, _: str) -> None:
            first, second = map(model.get_submodule, names)
            if first.weight.shape == second.weight.shape:
                second.weight = first.weight

        if None not in names:
            self.twins.both(tie)

    @rule(steps=st.integers(1, 2))
    def train_a_little(self, steps):
        def descend(model: nn.Module, _: str) -> None:
            optimizer = torch.optim.SGD(model.parameters(), lr=2**-6)
            for _ in range(steps):
                optimizer.zero_grad()
                model(self.inputs).sum().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1)
                optimizer.step()

        if list(self.twins.torchs.parameters()):
            self.twins.both(descend)

    @rule(there=st.booleans())
    def load_the_others_state_dict(self, there):
        sides = ("torchs", "own") if there else ("own", "torchs")
        source, target = (getattr(self.twins, side) for side in sides)
        self.twins.seeded(target.load_state_dict, source.state_dict())

    @rule(scale=st.sampled_from((0.5, 2.0)))
    def functional_call(self, scale):
        def called(model: nn.Module, _: str) -> Callable[[Tensor], Tensor]:
            state = {name: scale * p for name, p in model.named_parameters()}
            return lambda x: torch.func.functional_call(model, state, (x,))

        if not any(map(is_lazy, self.twins.torchs.parameters())):
            self.twins.check_calls(self.inputs, called)

    @rule(pre=st.booleans())
    def hook_all_modules(self, pre):
        def called(model: nn.Module, side: str) -> Callable[[Tensor], Tensor]:
            def call(x: Tensor) -> Tensor:
                with register(Hook(side, "forward pre of all" if pre else "forward of all")):
                    return model(x)

            return call

        register = register_module_forward_pre_hook if pre else register_module_forward_hook
        if not self.uncalled:
            self.twins.check_calls(self.inputs, called)


def run(machine: type[Surgery], sequences: int) -> None:
    run_state_machine_as_test(
        seed(torch.initial_seed())(machine),
        settings=settings(
            max_examples=sequences,
            stateful_step_count=16,
            database=None,
            phases=(Phase.generate, Phase.shrink),  # Phase.explain would trace every line
            suppress_health_check=list(HealthCheck),
        ),
    )
