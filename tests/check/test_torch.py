"""The checks for PyTorch on real modules: a planted bug is named, and its clean twin passes."""

import subprocess
import sys
from typing import Any

import pytest

import lapwing as lw
from lapwing.check import CheckError, CheckInputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
F = torch.nn.functional


def examples(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def network(*layers: Any) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))


def loss(model, batch):
    return F.cross_entropy(model(batch["x"]), batch["y"])


def batch(seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(16, 6, generator=generator),
        "y": torch.randint(0, 3, (16,), generator=generator),
    }


def fails(check, *args, match: str, **options) -> CheckError:
    with pytest.raises(CheckError, match=match) as caught:
        check(*args, **options)
    assert ". Look at " in str(caught.value)
    return caught.value


class Halved(torch.autograd.Function):
    """A custom derivative that is too small by half."""

    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def backward(ctx, g):
        return 0.5 * g


class WrongTanh(nn.Module):
    def forward(self, x):
        return Halved.apply(x)


# Gradients.


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.ReLU(), nn.LayerNorm(8), nn.BatchNorm1d(8), nn.Dropout(0.5)])
def test_right_gradients(layer):
    model = network(layer)
    before = [each.clone() for each in model.state_dict().values()]
    report = lw.check.torch.gradients(loss, model, batch())
    assert "agree with finite differences in float64" in str(report)
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert all(each.grad is None and each.dtype == torch.float32 for each in model.parameters())


def test_a_wrong_backward():
    error = fails(
        lw.check.torch.gradients,
        loss,
        network(WrongTanh()),
        batch(),
        match=r"the gradient of model.0.*is wrong: at",
    )
    assert {*error.where} == {"model.0.weight", "model.0.bias"}


def test_a_cut_gradient():
    model = network(nn.Tanh())

    def cut(model, batch):
        hidden = model[1](model[0](batch["x"]).detach())
        return F.cross_entropy(model[2](hidden), batch["y"])

    error = fails(
        lw.check.torch.gradients, cut, model, batch(), match=r"is cut: at model.0.*derivative is 0 and finite"
    )
    assert "detach()" in str(error)


# Influence.


def test_examples_are_independent():
    assert "none of 16 examples" in str(
        lw.check.torch.batch_independence(network(nn.Dropout(0.5)), batch()["x"])
    )
    assert lw.check.torch.batch_independence(network(nn.BatchNorm1d(8)).eval(), batch()["x"])


class OverBatch(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_examples_that_influence_each_other():
    x = batch()["x"]
    fails(
        lw.check.torch.batch_independence,
        network(OverBatch()),
        x,
        match="every example changes with every other",
    )
    fails(
        lw.check.torch.batch_independence,
        network(nn.BatchNorm1d(8)),
        x,
        match=r"the model has batch statistics at model.1, which make .*model.eval\(\)",
    )


class Attention(nn.Module):
    def __init__(self, *, causal: bool):
        super().__init__()
        torch.manual_seed(0)
        self.causal, self.project = causal, nn.Linear(4, 12)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def test_causality():
    x = examples(2, 7, 4)
    assert "no output depends on a later input" in str(lw.check.torch.causality(Attention(causal=True), x))
    fails(
        lw.check.torch.causality,
        Attention(causal=False),
        x,
        match="output at time 0 changes with the inputs from time 1",
    )
    fails(lw.check.torch.causality, Attention(causal=True), x, lag=1, match="up to time t − 1 only")


# Dead parameters.


def test_dead_parameters():
    model = network(nn.Tanh())
    report = lw.check.torch.dead_parameters(loss, model, [batch(0), batch(1)])
    assert "every leaf of the parameters (4) and of the batch (2) has an effect" in str(report)
    model.register_parameter("spare", nn.Parameter(torch.ones(5)))
    error = fails(
        lw.check.torch.dead_parameters,
        loss,
        model,
        [batch()],
        match=r"model.spare \(5 entries\) has no effect",
    )
    assert error.where == ("model.spare",)
    assert lw.check.torch.dead_parameters(loss, model, [batch()], ignore=["model.spare"])
    model.spare.requires_grad = False
    assert lw.check.torch.dead_parameters(loss, model, [batch()])


def test_a_parameter_that_is_cut_and_an_input_that_is_not_used():
    def cut(model, batch):
        with torch.no_grad():
            hidden = model[:2](batch["x"])
        return F.cross_entropy(model[2](hidden), batch["y"])

    fails(
        lw.check.torch.dead_parameters,
        cut,
        network(nn.Tanh()),
        [batch()],
        match="changes the loss, but its gradient is",
    )
    unused = {**batch(), "mask": torch.arange(16.0)}
    fails(
        lw.check.torch.dead_parameters,
        loss,
        network(nn.Tanh()),
        [unused],
        match=r"batch\['mask'\] has no effect",
    )


# Modes.


class AlwaysDropout(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5)


class OwnStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean += 0.1 * (x.detach().mean(0) - self.mean)
        return x - self.mean


def test_modes_of_a_clean_model():
    model = network(nn.BatchNorm1d(8), nn.Dropout(0.5))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    report = lw.check.torch.modes(model, batch()["x"])
    assert "(2 layers have a mode)" in str(report)
    assert model.training
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (AlwaysDropout(), "two calls with the same inputs differ .* something is still random"),
        (OwnStatistics(), "a call in evaluation mode changes model.1.mean"),
        (
            nn.BatchNorm1d(8, track_running_stats=False),
            "in evaluation mode the outputs .* batch statistics at model.1",
        ),
        (nn.BatchNorm1d(8, momentum=0.0), "does not change the running statistics of model.1"),
    ],
)
def test_modes_that_are_wrong(layer, match: str):
    fails(lw.check.torch.modes, network(layer), batch()["x"], match=match)


def test_modes_of_a_program():
    model = network(nn.Dropout(0.5))

    def step(mode: bool = True):
        model.train(mode)
        loss(model, batch()).backward()

    def evaluate(mode: bool = False):
        model.train(mode)
        with torch.no_grad():
            loss(model, batch())

    x = batch()["x"]
    assert "train_step and evaluate set it" in str(
        lw.check.torch.modes(model, x, train_step=step, evaluate=evaluate)
    )
    fails(
        lw.check.torch.modes,
        model,
        x,
        evaluate=lambda: evaluate(True),
        match="model.1 is in training mode in an eval",
    )
    fails(
        lw.check.torch.modes,
        model,
        x,
        train_step=lambda: step(False),
        match="model.1 is in evaluation mode in a tr",
    )
    model.train()
    fails(lw.check.torch.modes, model, x, evaluate=evaluate, match="leaves the model in evaluation mode")
    model.train()
    stays = lambda: loss(model, batch()).backward()  # noqa: E731
    fails(
        lw.check.torch.modes,
        model,
        x,
        train_step=stays,
        evaluate=evaluate,
        match="in evaluation mode in a training",
    )


# Structure and data.


def test_structure():
    model = network(nn.Tanh())
    optimizer = torch.optim.Adam(model.parameters())
    loss(model, batch()).backward()
    optimizer.step()
    report = lw.check.torch.structure(model, optimizer=optimizer, checkpoint=model.state_dict())
    assert str(report) == "structure: the optimizer and checkpoint have the leaves of the model (4)"
    model[2] = nn.Linear(8, 3)
    error = fails(
        lw.check.torch.structure, model, optimizer=optimizer, match="the optimizer lacks model.2.weight"
    )
    assert error.where == ("model.2.weight", "model.2.bias")
    older = {name: each for name, each in model.state_dict().items() if name != "0.bias"}
    fails(lw.check.torch.structure, model, checkpoint=older, match=r"checkpoint lacks \['0.bias'\]")


class InAList(nn.Module):
    def __init__(self, hold):
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.layers = hold([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        for layer in self.layers.values() if isinstance(self.layers, dict) else self.layers:
            x = torch.relu(layer(x))
        return self.out(x)


class WithATensor(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.out, self.scale = nn.Linear(4, 2), wrap(torch.ones(4))

    def forward(self, x):
        return self.out(self.scale * x)


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (lambda: InAList(list), r"model\.layers\[0\]\.weight \(16 entries\)"),
        (lambda: InAList(lambda layers: {"a": layers[0]}), r"model\.layers\['a'\]\.weight"),
        (lambda: nn.Sequential(nn.Tanh(), InAList(tuple)), r"model\.1\.layers\[0\]\.weight"),
        (lambda: WithATensor(lambda tensor: tensor.requires_grad_()), r"model\.scale \(4 entries\)"),
    ],
)
def test_weights_that_are_not_registered(model, where: str):
    fails(lw.check.torch.structure, model(), match=rf"{where}.* is not among the parameters of the model")


def test_weights_that_are_registered_or_hidden_on_purpose():
    lw.check.torch.structure(InAList(nn.ModuleList))
    lw.check.torch.structure(WithATensor(nn.Parameter))
    lw.check.torch.structure(WithATensor(lambda tensor: tensor))
    lw.check.torch.structure(InAList(lambda layers: [each.requires_grad_(False) for each in layers]))


def test_a_loss_in_one_precision_and_a_lazy_module():
    half = network(nn.Tanh()).bfloat16()
    with pytest.raises(lw.check.CheckInputError, match=r"cannot be computed in float64.* not to a fixed one"):
        lw.check.torch.gradients(lambda model, x: model(x.bfloat16()).float().mean(), half, batch()["x"])
    with pytest.raises(lw.check.CheckInputError, match=r"model\.weight has no shape yet: the module is lazy"):
        lw.check.torch.gradients(loss, nn.LazyLinear(3), batch())


def test_an_optimizer_of_another_model():
    model, other = network(nn.Tanh()), network(nn.Tanh())
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    fails(
        lw.check.torch.structure, model, optimizer=both, match="has 4 parameters that the model does not have"
    )
    model = network(nn.Tanh())
    optimizer = torch.optim.Adam(model.parameters())
    loss(model, batch()).backward()
    optimizer.step()
    optimizer.state[model[0].weight]["exp_avg"] = torch.zeros(2, 2)
    fails(
        lw.check.torch.structure,
        model,
        optimizer=optimizer,
        match=r"exp_avg of model.0.weight has shape \(2, 2\)",
    )


def test_fresh_data():
    DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset
    data = TensorDataset(examples(64, 6), torch.arange(64) % 3)
    loader = DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
    assert "8 batches, all different" in str(lw.check.torch.fresh_data(loader, count=8))
    first = next(iter(loader))
    fails(lw.check.torch.fresh_data, lambda step: first, match="batch 1 is the same as batch 0")


# Inputs that a check cannot answer.


def test_a_loss_of_many_numbers():
    with pytest.raises(CheckInputError, match=r"one number, but is shape \(16, 3\); take its mean"):
        lw.check.torch.gradients(lambda model, x: model(x), network(nn.Tanh()), batch()["x"])
    with pytest.raises(CheckInputError, match=r"expected a torch.nn.Module, found a function"):
        lw.check.torch.gradients(loss, lambda x: x, batch())


def test_torch_is_imported_by_a_call_only():
    code = "import lapwing.check.torch, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
